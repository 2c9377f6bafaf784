"""Runs a program with goloop, as Python itself would run it.

In `python -m goloop` the module __main__ is goloop's. The program uses the same module object: its
names are replaced by those that Python would have given to the program. After the program's end
Python itself joins threads and runs atexit functions.

Options of Python before the program (-i, -P, -X dev) need a new interpreter: the process
re-executes itself with these options. Only -x is of the program's file, not of the interpreter.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import runpy
import sys

from ..interpreter_options import BadOption, interpreter_options, split_options
from ..loop.debugging import TRACEBACK
from .patch_process import use_goloop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import Any, NoReturn

# With one of these, Python may not find the folder in which goloop is.
_ISOLATING = frozenset(("-E", "-I", "-P", "-s", "-S"))
_SKIP_FIRST_LINE = ("-x",)
# Python's own display of an exception, before a program can replace it.
_display = sys.__excepthook__


def run(arguments: list[str]) -> None:
    """Run the arguments as `python ARGUMENT...` would; return when the program ends.

    The caller must return immediately, because its module has become the program's. Raises
    BadOption, and any exception of the program.
    """
    options, rest = split_options(arguments)
    if any(option != _SKIP_FIRST_LINE for option in options):
        _reexecute(options, rest)
    kind = rest[0]
    if kind == "--" or not kind.startswith("-"):
        path = rest[1:] if kind == "--" else rest
        if path and path[0] != "-":
            _run_path(path, skip_first_line=bool(options))
        else:
            _run_stdin(path or [""])
    elif kind.startswith("-c"):
        _run_command(*_option_value(rest))
    elif kind.startswith("-m"):
        _run_module(*_option_value(rest))
    else:
        _run_stdin(rest)


# ---- the command line ----------------------------------------------------------------------------


def _option_value(rest: list[str]) -> tuple[str, list[str]]:
    """Return the value of -c or -m, which may be part of the same word, and the arguments.

    Raises BadOption if there is no value.
    """
    if len(rest[0]) > 2:
        return rest[0][2:], rest[1:]
    if len(rest) < 2:
        raise BadOption(f"argument expected for the {rest[0]} option")
    return rest[1], rest[2:]


def _reexecute(options: list[tuple[str, ...]], rest: list[str]) -> NoReturn:
    """Replace this process by a Python with these options that runs `goloop REST...`.

    Raises BadOption if the interpreter's path is unknown, or if it would not find goloop.
    """
    if not sys.executable:
        raise BadOption(f"{options[0][0]} needs a new Python, and sys.executable is empty")
    if ("-i",) in options and rest[-1] in ("-", "--"):
        # Only the interactive prompt, without a program before it.
        rest = ["-c", ""]
    words = [
        word
        for option in [*interpreter_options(), *options]
        if option != _SKIP_FIRST_LINE
        for word in option
    ]
    isolating = [option[0] for option in options if option[0] in _ISOLATING]
    if isolating and not _finds_goloop(words):
        folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
        raise BadOption(
            f"with {' '.join(isolating)} Python does not find goloop, which is in {folder}; "
            "leave the option out"
        )
    skip = _SKIP_FIRST_LINE if _SKIP_FIRST_LINE in options else ()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *words, "-m", "goloop", *skip, *rest])


def _finds_goloop(words: list[str]) -> bool:
    """Return true if a Python with these options can import goloop."""
    import subprocess

    program = "import importlib.util as u, os; os._exit(u.find_spec('goloop') is None)"
    command = [sys.executable, *(word for word in words if word != "-i"), "-c", program]
    silent = subprocess.DEVNULL
    done = subprocess.run(command, stdin=silent, stdout=silent, stderr=silent, check=False)
    return done.returncode != 1


# ---- kinds of programs ---------------------------------------------------------------------------


def _run_command(source: str, arguments: list[str]) -> None:
    """Run `-c source`."""
    sys.argv = ["-c", *arguments]
    _set_path("")
    use_goloop(command=True)
    if sys.version_info >= (3, 14):
        import textwrap

        source = textwrap.dedent(source)
    names = _reset_main_module(loader=importlib.machinery.BuiltinImporter)
    _execute(names, lambda: _compile_source(source, "<string>"))


def _compile_source(source: str, name: str) -> CodeType:
    """Return the code of a source text; from 3.13 on, register its lines for tracebacks.

    Raises SyntaxError.
    """
    code: CodeType = compile(source, name, "exec", dont_inherit=True)
    # From 3.13 on, tracebacks show the source lines of `-c` programs, too.
    import linecache

    register = getattr(linecache, "_register_code", None)
    if register is not None:
        # Since 3.14, and in late releases of 3.13, its first argument is the code.
        takes_code = hasattr(linecache, "_interactive_cache")
        register(code if takes_code else name, source, name)
    return code


def _run_module(name: str, arguments: list[str]) -> None:
    """Run `-m name`."""
    sys.argv = ["-m", *arguments]
    _set_path(os.getcwd())
    use_goloop(command=True)
    names = _reset_main_module()
    _execute(names, lambda: runpy._run_module_as_main(name))  # type: ignore[attr-defined]


def _run_stdin(arguments: list[str]) -> None:
    """Run `-` or no argument: the program is read from standard input.

    On a terminal, the process re-executes itself for Python's interactive prompt instead.
    """
    if sys.stdin is not None and sys.stdin.isatty():
        _reexecute([("-i",)], ["-c", ""])
    sys.argv = arguments
    _set_path("")
    use_goloop(command=True)
    names = _reset_main_module(loader=importlib.machinery.BuiltinImporter, file="<stdin>")
    _execute(names, lambda: compile(_read_stdin(), "<stdin>", "exec", dont_inherit=True))


def _read_stdin() -> bytes:
    """Return all of standard input, or nothing if it is closed."""
    return b"" if sys.stdin is None else sys.stdin.buffer.read()


def _run_path(arguments: list[str], *, skip_first_line: bool) -> None:
    """Run a file, source or bytecode, or a directory or zip file with a __main__ module.

    `skip_first_line` is true for Python's option -x, which is for files only. Exits with status 2
    if the file cannot be read.
    """
    sys.argv = arguments
    path = os.path.join(os.getcwd(), arguments[0]) if arguments[0] else os.getcwd()
    if pkgutil.get_importer(path) is not None:
        sys.path[: 0 if sys.flags.safe_path else 1] = [path]
        use_goloop(command=True)
        names = _reset_main_module()
        _execute(names, lambda: runpy._run_module_as_main("__main__", False))  # type: ignore[attr-defined]
        return
    content = _read(path)
    if skip_first_line:
        # The empty line in its place keeps the numbers of the others.
        content = b"".join(content.partition(b"\n")[1:])
    _set_path(os.path.dirname(os.path.realpath(path)))
    use_goloop(command=True)
    if path.endswith(".pyc") or content[:4] == importlib.util.MAGIC_NUMBER:
        sourceless = importlib.machinery.SourcelessFileLoader("__main__", path)
        names = _reset_main_module(loader=sourceless, file=path)
        _execute(names, lambda: _load_bytecode(sourceless))
    else:
        loader = importlib.machinery.SourceFileLoader("__main__", path)
        names = _reset_main_module(loader=loader, file=path)
        _execute(names, lambda: compile(content, path, "exec", dont_inherit=True))


def _read(path: str) -> bytes:
    """Return the content of the program's file; exit like Python if it cannot be read."""
    try:
        with io.open_code(path) as file:
            return file.read()
    except OSError as error:
        # Python's message and exit status.
        if isinstance(error, IsADirectoryError):
            what = f"{path!r} is a directory, cannot continue"
        else:
            what = f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
        print(f"{sys.orig_argv[0]}: {what}", file=sys.stderr)
        sys.exit(2)


def _load_bytecode(loader: importlib.machinery.SourcelessFileLoader) -> CodeType:
    """Return the code of a .pyc file; raise RuntimeError as Python does if it is invalid."""
    try:
        code = loader.get_code("__main__")
    except (ImportError, EOFError, ValueError):
        code = None
    if code is None:
        raise RuntimeError("Bad magic number in .pyc file")
    return code


# ---- the module __main__ -------------------------------------------------------------------------


def _set_path(entry: str) -> None:
    """Replace goloop's entry at the front of sys.path by the program's."""
    if not sys.flags.safe_path:
        sys.path[0] = entry


def _reset_main_module(*, loader: Any = None, file: str | None = None) -> dict[str, Any]:
    """Reset __main__'s namespace as at the start of a program, and return it."""
    names = vars(sys.modules["__main__"])
    builtins = names["__builtins__"]
    names.clear()
    names.update(
        __name__="__main__",
        __doc__=None,
        __package__=None,
        __loader__=loader,
        __spec__=None,
        __builtins__=builtins,
    )
    if sys.version_info < (3, 14):
        names["__annotations__"] = {}
    if file is not None:
        names["__file__"] = file
        if sys.version_info < (3, 15):
            names["__cached__"] = None
    return names


def _execute(names: dict[str, Any], make: Any) -> None:
    """Call `make()` and run the code that it returns, if any, in the namespace `names`.

    An exception is raised; Python then prints it with a traceback that begins with the program's
    first frame.
    """
    try:
        code = make()
        if code is not None and not isinstance(code, dict):
            exec(code, names)
    except BaseException as error:
        # Without the prompt of -i, Python prints no SystemExit and calls no hook.
        if not isinstance(error, SystemExit) or sys.flags.inspect:
            _shorten_reported_traceback(error, _without_goloop_frames(TRACEBACK.__get__(error)))
        raise


def _without_goloop_frames(traceback: TracebackType | None) -> TracebackType | None:
    """Return a traceback without goloop's frames at its beginning; runpy's frames stay."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _shorten_reported_traceback(error: BaseException, traceback: TracebackType | None) -> None:
    """Let Python report the error with this traceback, without the frames that called the program.

    Python sets sys.last_exc and calls sys.excepthook when the exception has left the last frame. A
    hook for that one call changes the traceback, and calls the program's own hook.
    """
    missing = object()
    hook: Any = getattr(sys, "excepthook", missing)

    def report(kind: type[BaseException], reported: BaseException, given: Any) -> None:
        """Restore the program's hook, and call it with the program's part of the traceback."""
        if hook is missing:
            del sys.excepthook
        else:
            sys.excepthook = hook
        if reported is error:
            TRACEBACK.__set__(error, traceback)
            given = sys.last_traceback = traceback
        if hook is missing:
            print("sys.excepthook is missing", file=sys.stderr)
            _display(kind, reported, given)
            return
        try:
            hook(kind, reported, given)
        except BaseException as another:
            # Python would show this function in the traceback of the hook.
            if isinstance(another, SystemExit) and not sys.flags.inspect:
                raise
            print("Error in sys.excepthook:", file=sys.stderr)
            shown = _without_goloop_frames(TRACEBACK.__get__(another))
            TRACEBACK.__set__(another, shown)
            _display(type(another), another, shown)
            print("\nOriginal exception was:", file=sys.stderr)
            _display(kind, reported, given)

    sys.excepthook = report
