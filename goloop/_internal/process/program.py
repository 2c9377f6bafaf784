"""Runs a program as Python itself would run it, on goloop.

`python -m goloop` has already got the module __main__, so the program takes that one over:
its names are those that Python would have given, and goloop's are gone.  What follows the
program's end is Python's: threads are joined, atexit's functions run.

Options of Python itself that stand before the program (-i, -P, -X dev) need a Python that was
started with them: this process is replaced by one.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import os
import pkgutil
import runpy
import sys

from ..interpreter_options import interpreter_options
from ..loop.debugging import CONTEXT, TRACEBACK
from .patch_process import switch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, TracebackType
    from typing import Any, NoReturn

# Python's own options, without those that only print, and -c and -m.
_FLAGS = frozenset("bBdEiIOPqRsSuvx")
_WITH_VALUE = frozenset("WX")


class BadOption(Exception):
    """What is wrong with the command line, in one line."""


def run(arguments: list[str]) -> None:
    """Runs what the arguments say, as `python ARGUMENT...`, and returns at its end.

    The caller must have nothing left to do: its module has become the program's.  Raises BadOption,
    and whatever the program raises.
    """
    options, rest = _python_options(arguments)
    if options:
        _restart(options, rest)
    kind = rest[0]
    if kind.startswith("-c"):
        _command(*_value(rest))
    elif kind.startswith("-m"):
        _module(*_value(rest))
    elif kind == "-":
        _stdin(rest)
    else:
        _path(rest)


# ---- the command line ----------------------------------------------------------------------------


def _python_options(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Python's own options, as it reads them, and what follows: -c, -m, - or a path first."""
    options: list[str] = []
    for at, word in enumerate(arguments):
        if options and options[-1] in ("-W", "-X"):
            options[-1] += word
            continue
        if word == "--":
            return options, arguments[at + 1 :] or ["-"]
        if word == "-" or not word.startswith("-"):
            return options, arguments[at:]
        if word.startswith("--"):
            raise BadOption(f"unknown option {word}")
        for place, letter in enumerate(word[1:], start=1):
            if letter in "cm":
                return options, ["-" + word[place:], *arguments[at + 1 :]]
            if letter in _WITH_VALUE:
                options.append("-" + word[place:])
                break
            if letter not in _FLAGS:
                raise BadOption(f"unknown option -{letter}")
            options.append("-" + letter)
    if options and options[-1] in ("-W", "-X"):
        raise BadOption(f"argument expected for the {options[-1]} option")
    return options, ["-"]


def _value(rest: list[str]) -> tuple[str, list[str]]:
    """The value of -c or -m, which may stand in the same word, and the program's arguments."""
    if len(rest[0]) > 2:
        return rest[0][2:], rest[1:]
    if len(rest) < 2:
        raise BadOption(f"argument expected for the {rest[0]} option")
    return rest[1], rest[2:]


def _restart(options: list[str], rest: list[str]) -> NoReturn:
    if not sys.executable:
        raise BadOption(f"{options[0]} needs a Python of its own, and sys.executable names none")
    if rest[0] == "-" and "-i" in options:
        # A prompt, without a program before.
        rest = ["-c", ""]
    ours = interpreter_options()
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *ours, *options, "-m", "goloop", *rest])


# ---- kinds of programs ---------------------------------------------------------------------------


def _command(source: str, arguments: list[str]) -> None:
    """`-c source`."""
    sys.argv = ["-c", *arguments]
    _set_path("")
    switch(command=True)
    if sys.version_info >= (3, 14):
        import textwrap

        source = textwrap.dedent(source)
    names = _become(loader=importlib.machinery.BuiltinImporter)
    _execute(names, lambda: _compiled(source, "<string>"))


def _compiled(source: str, name: str) -> CodeType:
    code: CodeType = compile(source, name, "exec", dont_inherit=True)
    # From 3.13 on, tracebacks show the lines of such a program too.
    import linecache

    register = getattr(linecache, "_register_code", None)
    if register is not None:
        # Since 3.14 it takes the code, and late releases of 3.13 do.
        takes_code = hasattr(linecache, "_interactive_cache")
        register(code if takes_code else name, source, name)
    return code


def _module(name: str, arguments: list[str]) -> None:
    """`-m name`."""
    sys.argv = ["-m", *arguments]
    _set_path(os.getcwd())
    switch(command=True)
    names = _become()
    _execute(names, lambda: runpy._run_module_as_main(name))  # type: ignore[attr-defined]


def _stdin(arguments: list[str]) -> None:
    """`-`, or nothing: the program comes from standard input."""
    if sys.stdin is not None and sys.stdin.isatty():
        _restart(["-i"], ["-c", ""])
    sys.argv = arguments
    _set_path("")
    switch(command=True)
    names = _become(loader=importlib.machinery.BuiltinImporter, file="<stdin>")
    _execute(names, lambda: compile(_input(), "<stdin>", "exec", dont_inherit=True))


def _input() -> bytes:
    return b"" if sys.stdin is None else sys.stdin.buffer.read()


def _path(arguments: list[str]) -> None:
    """A file, or what has a __main__ in it: a directory, a zip file."""
    sys.argv = arguments
    path = os.path.join(os.getcwd(), arguments[0])
    if pkgutil.get_importer(path) is not None:
        sys.path[: 0 if sys.flags.safe_path else 1] = [path]
        switch(command=True)
        names = _become()
        _execute(names, lambda: runpy._run_module_as_main("__main__", False))  # type: ignore[attr-defined]
        return
    content = _read(path)
    _set_path(os.path.dirname(os.path.realpath(path)))
    switch(command=True)
    if path.endswith(".pyc") or content[:4] == importlib.util.MAGIC_NUMBER:
        sourceless = importlib.machinery.SourcelessFileLoader("__main__", path)
        names = _become(loader=sourceless, file=path)
        _execute(names, lambda: _bytecode(sourceless))
    else:
        loader = importlib.machinery.SourceFileLoader("__main__", path)
        names = _become(loader=loader, file=path)
        _execute(names, lambda: compile(content, path, "exec", dont_inherit=True))


def _read(path: str) -> bytes:
    try:
        with io.open_code(path) as file:
            return file.read()
    except OSError as error:
        # In Python's words, and with its status.
        if isinstance(error, IsADirectoryError):
            what = f"{path!r} is a directory, cannot continue"
        else:
            what = f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}"
        print(f"{sys.orig_argv[0]}: {what}", file=sys.stderr)
        sys.exit(2)


def _bytecode(loader: importlib.machinery.SourcelessFileLoader) -> CodeType:
    try:
        code = loader.get_code("__main__")
    except (ImportError, EOFError, ValueError):
        code = None
    if code is None:
        raise RuntimeError("Bad magic number in .pyc file")
    return code


# ---- the module __main__ -------------------------------------------------------------------------


def _set_path(entry: str) -> None:
    """What Python puts before the rest of sys.path; Python put goloop's in that place."""
    if not sys.flags.safe_path:
        sys.path[0] = entry


def _become(*, loader: Any = None, file: str | None = None) -> dict[str, Any]:
    """The names of __main__, as those of a program that begins."""
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
    """Runs the program; a traceback begins with its own first frame."""
    try:
        code = make()
        if code is not None and not isinstance(code, dict):
            exec(code, names)
    except SystemExit:
        raise
    except BaseException as error:
        TRACEBACK.__set__(error, _of_the_program(TRACEBACK.__get__(error)))
        _show(error)
        raise


def _of_the_program(traceback: TracebackType | None) -> TracebackType | None:
    """Without goloop's frames, which come first; runpy's Python shows as well."""
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return traceback


def _show(error: BaseException) -> None:
    """Prints the traceback now; on its way out of Python, the exception is not shown again."""
    hook = sys.excepthook
    try:
        hook(type(error), error, error.__traceback__)
    except SystemExit:
        raise
    except BaseException as another:
        CONTEXT.__set__(another, None)
        print("Error in sys.excepthook:", file=sys.stderr)
        TRACEBACK.__set__(another, _of_the_program(TRACEBACK.__get__(another)))
        sys.__excepthook__(type(another), another, another.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(type(error), error, error.__traceback__)

    def again(*ignored: object) -> None:
        sys.excepthook = hook  # for the prompt that comes with -i

    sys.excepthook = again
