"""`python -m goloop` runs programs as Python does: both run each program here, and are compared.

An intended difference: asyncio's loops are goloop's.
"""

from __future__ import annotations

import compileall
import os
import py_compile
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import ended
import pytest

import goloop

PROGRAMS = Path(__file__).with_name("programs")

# Prints the visible properties of a program's start.
TELL = (PROGRAMS / "command_tell.py").read_text()

LOOP = (PROGRAMS / "command_loop.py").read_text()


def run(
    *arguments: str | Path,
    cwd: Path | None = None,
    text: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Python with these arguments; goloop is found wherever it was found here."""
    path = os.pathsep.join(filter(None, sys.path))
    environment = {"PYTHONPATH": path, **(environment or {})}
    return ended.python(*arguments, cwd=cwd, text=text or "", apart=True, **environment)


def same(
    *arguments: str | Path,
    options: Sequence[str] = (),
    cwd: Path,
    text: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the program by Python and by goloop; both must say the same."""
    plain = run(*options, *arguments, cwd=cwd, text=text, environment=environment)
    ours = run("-m", "goloop", *options, *arguments, cwd=cwd, text=text, environment=environment)
    assert ours.stdout == plain.stdout
    assert _comparable(ours.stderr) == _comparable(plain.stderr)
    assert ours.returncode == plain.returncode
    return ours


def _comparable(text: str) -> str:
    # The module's object has an address.
    return re.sub(r"0x[0-9a-f]+", "0x", text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program in each of its shapes."""
    (tmp_path / "tell.py").write_text(TELL)
    (tmp_path / "helper.py").write_text("word = 'helped'\n")
    (tmp_path / "uses.py").write_text("import helper\nprint(helper.word, __file__)\n")
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("print('package', __name__)\n")
    (package / "__main__.py").write_text(TELL + "from . import part\n")
    (package / "part.py").write_text("print('part', __name__)\n")
    room = tmp_path / "room"
    room.mkdir()
    (room / "__main__.py").write_text(TELL + "import near\n")
    (room / "near.py").write_text("print('near', __file__)\n")
    (tmp_path / "empty").mkdir()
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as archive:
        archive.write(room / "__main__.py", "__main__.py")
        archive.write(room / "near.py", "near.py")
    py_compile.compile(str(tmp_path / "tell.py"), cfile=str(tmp_path / "tell.pyc"))
    other = tmp_path / "other"
    other.mkdir()
    (other / "link.py").symlink_to(tmp_path / "uses.py")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["tell.py", "a", "-x", "--help"], id="file"),
        pytest.param(["./room/../tell.py"], id="file-dotted"),
        pytest.param(["uses.py"], id="imports-beside"),
        pytest.param(["other/link.py"], id="symbolic-link"),
        pytest.param(["tell.pyc", "1"], id="bytecode"),
        pytest.param(["-m", "tell", "-m", "x"], id="module"),
        pytest.param(["-mtell"], id="module-one-word"),
        pytest.param(["-m", "package", "y"], id="package"),
        pytest.param(["-m", "package.part"], id="module-of-package"),
        pytest.param(["room", "z"], id="directory"),
        pytest.param(["room/"], id="directory-slash"),
        pytest.param(["program.zip", "z"], id="zip"),
        pytest.param(["-c", TELL, "-c", "q"], id="command"),
        pytest.param(["-cprint(1)"], id="command-one-word"),
        pytest.param(["-c", "    print(2)\n    print(3)"], id="command-indented"),
        pytest.param(["--", "tell.py"], id="two-dashes"),
    ],
)
def test_program_sees_the_same_environment_as_with_python(
    folder: Path, arguments: list[str]
) -> None:
    done = same(*arguments, cwd=folder)
    assert done.stdout or done.stderr


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["-I", "-O"], id="isolated"),
        pytest.param(["-E", "-s", "-P", "-B", "-b", "-q", "-Werror"], id="in-part"),
        pytest.param(
            ["-OO", "-bb", "-u", "-R", "-Xutf8=0", "-Xnew=1", "--check-hash-based-pycs", "never"],
            id="others",
        ),
    ],
)
def test_options_before_goloop_stay_where_python_is_started_again(
    folder: Path, options: list[str]
) -> None:
    program = (
        "import _imp, sys; print(sys.flags, sys.warnoptions, sys._xoptions,"
        " sys.stdout.write_through, _imp.check_hash_based_pycs)"
    )
    words = ["-Xdev", "-Wignore::ImportWarning", "-c", program]
    variables = {"PYTHONWARNINGS": "default,ignore::UserWarning", "PYTHONHASHSEED": "0"}
    plain = run(*options, *words, cwd=folder, environment=variables)
    ours = run(*options, "-m", "goloop", *words, cwd=folder, environment=variables)
    assert ours.stdout == plain.stdout != ""


@pytest.mark.parametrize("argument", ["tell.py", "room", "program.zip", "-mtell", "-cprint(7)"])
@pytest.mark.parametrize("by", ["-P", "PYTHONSAFEPATH"])
def test_a_safe_path_is_kept(folder: Path, argument: str, by: str) -> None:
    # goloop itself is found by PYTHONPATH.
    if by == "-P":
        same(argument, options=["-P"], cwd=folder)
        plain = run("-P", "-m", "goloop", argument, cwd=folder)
    else:
        same(argument, cwd=folder, environment={"PYTHONSAFEPATH": "1"})
        plain = run("-m", "goloop", argument, cwd=folder, environment={"PYTHONSAFEPATH": "1"})
    assert plain.stdout == run("-P", argument, cwd=folder).stdout


def test_the_program_of_standard_input(folder: Path) -> None:
    same("-", "a", "b", cwd=folder, text=TELL)
    same("-", cwd=folder, text="")
    same("-", cwd=folder, text="import helper\nprint(helper.word)\n1/0\n")


def test_options_of_python_before_the_program(folder: Path) -> None:
    for options in (
        ["-X", "dev"],
        ["-Xdev"],
        ["-W", "error"],
        ["-OO"],
        ["-u"],
        ["-B", "-q"],
        ["-Bs"],
    ):
        done = same("tell.py", "x", options=options, cwd=folder)
        assert "sys.flags(" in done.stdout
    done = run("-W", "ignore", "-m", "goloop", "-Xdev", "-c", "import sys; print(sys.warnoptions)")
    assert "'ignore'" in done.stdout
    assert "'default'" in done.stdout


FIRST_LINE_IS_NOT_PYTHON = (
    "@@ exec python3 -x $0\nimport sys\nprint(sys._getframe().f_lineno)\n1/0\n"
)
# Settings that options change, and the program's own view of its file.
SETTINGS = (
    TELL
    + """\
import _imp
print(sys.flags, sys.warnoptions, sys._xoptions, sys.dont_write_bytecode, __debug__)
print(sys.stdout.write_through, _imp.check_hash_based_pycs, "site" in sys.modules)
"""
)
OPTIONS_SET_BY_VARIABLES = {
    "PYTHONOPTIMIZE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONWARNINGS": "error::UserWarning",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONHASHSEED": "0",
}


@pytest.mark.parametrize("environment", [{}, OPTIONS_SET_BY_VARIABLES], ids=["", "variables"])
@pytest.mark.parametrize(
    "options",
    [
        *(
            "-b",
            "-bb",
            "-B",
            "-d",
            "-E",
            "-I",
            "-O",
            "-OO",
            "-P",
            "-q",
            "-R",
            "-s",
            "-t",
            "-u",
            "-x",
        ),
        *("-W error", "-Wignore::ImportWarning", "-X dev", "-Xnew=1", "-X utf8=0", "-IW error"),
        *("--check-hash-based-pycs never", "-O --check-hash-based-pycs always -x", "-EB -xu"),
    ],
)
def test_each_option_has_the_effect_of_python_s(
    folder: Path, options: str, environment: Mapping[str, str]
) -> None:
    (folder / "settings.py").write_text("#\n" + SETTINGS)
    done = same("settings.py", "-x", options=options.split(), cwd=folder, environment=environment)
    assert "sys.flags(" in done.stdout


@pytest.mark.parametrize("kind", ["tell.pyc", "room", "program.zip", "-mtell", "-cprint(7)", "-"])
def test_x_leaves_programs_that_are_not_source_files(folder: Path, kind: str) -> None:
    assert same(kind, options=["-x"], cwd=folder, text="print(8)\n").stdout


def test_x_skips_the_first_line(folder: Path) -> None:
    (folder / "first.py").write_text(FIRST_LINE_IS_NOT_PYTHON)
    for options in (["-x"], ["-Bx"], ["-x", "-X", "dev"]):
        assert same("first.py", options=options, cwd=folder).stdout == "3\n"
    (folder / "only.py").write_text("@@")
    assert same("only.py", options=["-x"], cwd=folder).returncode == 0


def test_empty_value_of_an_option_is_a_value(folder: Path) -> None:
    assert same("tell.py", options=["-W", "", "-X", ""], cwd=folder).stdout


@pytest.mark.parametrize(
    "words", [["--", "-c.py"], ["--", "-m.py", "x"], [""], ["--", ""], ["--", "-"]]
)
def test_a_program_after_two_dashes_is_a_file(folder: Path, words: list[str]) -> None:
    for name in ("-c.py", "-m.py"):
        (folder / name).write_text(TELL)
    same(*words, cwd=folder, text=TELL)
    same(*words, options=["-B"], cwd=folder, text=TELL)


def test_program_of_standard_input_without_a_dash_has_an_empty_name(folder: Path) -> None:
    assert "['']" in same("--", cwd=folder, text=TELL).stdout
    assert "['']" in same("-B", cwd=folder, text=TELL).stdout


@pytest.mark.parametrize("option", ["-S", "-E", "-I"])
def test_option_that_hides_goloop_is_refused(tmp_path: Path, option: str) -> None:
    """goloop is found by PYTHONPATH here, and by site-packages where it is installed."""
    source = Path(goloop.__file__).parents[1]
    probe = "import importlib.util as u; print(u.find_spec('goloop'))"
    hidden = run(option, "-c", probe, cwd=tmp_path).stdout == "None\n"
    done = run("-m", "goloop", option, "-cprint(7)", cwd=tmp_path, environment={"PYTHONPATH": ""})
    if hidden or option == "-S":
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.splitlines()[0] == (
            f"goloop: with {option} Python does not find goloop, which is in {source}; "
            "leave the option out"
        )
    else:
        assert done.stdout == "7\n"


def test_a_prompt_after_the_program(folder: Path) -> None:
    (folder / "names.py").write_text("answer = 42\n" + LOOP)
    done = run("-m", "goloop", "-i", "names.py", cwd=folder, text="print(answer, __name__)\n")
    assert "<goloop.Loop" in done.stdout
    assert "42 __main__" in done.stdout
    assert done.returncode == 0
    (folder / "fails.py").write_text("answer = 43\n1/0\n")
    text = "print(answer)\n1/0\nimport sys\nsys.exit(4)\n"
    plain = run("-i", "fails.py", cwd=folder, text=text)
    ours = run("-m", "goloop", "-i", "fails.py", cwd=folder, text=text)
    assert (ours.stdout, ours.returncode) == (plain.stdout, plain.returncode) == ("43\n", 4)
    assert ours.stderr.count("ZeroDivisionError") == plain.stderr.count("ZeroDivisionError") == 2
    (folder / "exits.py").write_text("import sys\nsys.exit(5)\n")
    text = "import sys\nprint(sys.last_value.code, sys.last_traceback.tb_lineno)\n"
    plain = run("-i", "exits.py", cwd=folder, text=text)
    ours = run("-m", "goloop", "-i", "exits.py", cwd=folder, text=text)
    assert (ours.stdout, ours.returncode) == (plain.stdout, plain.returncode) == ("5 2\n", 0)
    assert _comparable(ours.stderr) == _comparable(plain.stderr)
    done = run("-m", "goloop", "-i", cwd=folder, text=LOOP.replace("print", "\nprint"))
    assert "<goloop.Loop" in done.stdout


# Nothing can be set on one.
FROZEN = (PROGRAMS / "command_frozen.py").read_text()
# Describes sys.last_* in the hook and at exit; an audit hook has the order.
LAST = """\
import atexit, sys, traceback
def names(found):
    return [frame.name for frame in traceback.extract_tb(found)]
def last(place, error, found):
    kept = sys.last_exc if sys.version_info >= (3, 12) else sys.last_value
    print(place, sys.last_type is type(error), kept is error, sys.last_value is error)
    print(sys.last_traceback is found is error.__traceback__, names(found), sys.exc_info()[0])
def hook(kind, error, found):
    last("hook", error, found)
    print(sys.excepthook is hook)
    BODY
def at_exit():
    last("exit", sys.last_value, sys.last_traceback)
    print(sys.excepthook is hook)
atexit.register(at_exit)
sys.excepthook = hook
def fails():
    raise ValueError(1)
try:
    fails()
except ValueError:
    fails()
"""
FAILURES = {
    "last": LAST.replace("BODY", "pass"),
    "last-hook-fails": LAST.replace("BODY", "1/0"),
    "last-hook-exits": LAST.replace("BODY", "sys.exit(7)"),
    "last-hook-changes": LAST.replace("BODY", "sys.excepthook = print"),
    "no-hook": "import sys\ndel sys.excepthook\n1/0\n",
    "frozen": FROZEN + "fails()\n",
    "hook-frozen": FROZEN + "sys.excepthook = fails\n1/0\n",
    "raises": "def f():\n    raise ValueError('no')\nf()\n",
    "syntax": "x = = 1\n",
    "exit-3": "import sys; sys.exit(3)\n",
    "exit-text": "raise SystemExit('words')\n",
    "exit-none": "raise SystemExit\n",
    "cause": "try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError(1) from e\n",
    "hook": "import sys\nsys.excepthook = lambda *a: print('hook', a[2].tb_lineno)\n\n1/0\n",
    "hook-fails": "import sys\nsys.excepthook = 7\n1/0\n",
    "group": "raise ExceptionGroup('g', [ValueError(1)])\n",
    "atexit": (PROGRAMS / "command_atexit.py").read_text(),
    "thread": ((PROGRAMS / "command_thread.py").read_text()),
    "deleted": (PROGRAMS / "command_deleted.py").read_text(),
    "cookie": "# coding: latin-1\nprint('x')\n",
    "future": "from __future__ import annotations\ndef f(x: no): pass\nprint(f.__annotations__)\n",
}


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("way", ["file", "module", "command", "stdin"])
def test_a_program_ends_as_under_python(folder: Path, name: str, way: str) -> None:
    source = FAILURES[name]
    (folder / "fails.py").write_text(source)
    if way == "file":
        same("fails.py", cwd=folder)
    elif way == "module":
        same("-m", "fails", cwd=folder)
    elif way == "command":
        same("-c", source, cwd=folder)
    elif name != "cookie":  # Python loses a piped program that declares an encoding
        same("-", cwd=folder, text=source)


def test_loaders_of_patched_modules_have_the_interface_of_python_s(folder: Path) -> None:
    utils = folder / "django" / "utils"
    utils.mkdir(parents=True)
    (folder / "django" / "__init__.py").write_text("")
    (utils / "__init__.py").write_text("")
    source = (PROGRAMS / "command_module_loaders.py").read_text()
    (utils / "autoreload.py").write_text(source)
    (folder / "loaders.py").write_text((PROGRAMS / "command_loaders.py").read_text())
    done = same("loaders.py", options=["-W", "ignore"], cwd=folder)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_ends_the_program_by_that_signal(folder: Path) -> None:
    (folder / "waits.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = same("waits.py", cwd=folder)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.count("Traceback") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["missing.py"],
        ["empty"],
        ["-m", "missing_module"],
        ["-m", "package.missing"],
        ["-m", "helper.missing"],
        ["broken.pyc"],
        ["unreadable/x.py"],
    ],
    ids=" ".join,
)
def test_missing_program_gives_the_error_of_python(folder: Path, arguments: list[str]) -> None:
    (folder / "broken.pyc").write_bytes(b"nothing of the kind")
    done = same(*arguments, cwd=folder)
    assert done.returncode in (1, 2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nonsense"], "goloop: unknown option --nonsense"),
        (["--check-hash-based-pycs=never"], "goloop: unknown option --check-hash-based-pycs=never"),
        (
            ["--check-hash-based-pycs"],
            "goloop: argument expected for the --check-hash-based-pycs option",
        ),
        (["-Bh"], "goloop: -h runs no program; for Python's own output: python -h"),
        (["-VV"], "goloop: -V runs no program; for Python's own output: python -V"),
        (
            ["--help-all"],
            "goloop: --help-all runs no program; for Python's own output: python --help-all",
        ),
        (["-z", "tell.py"], "goloop: unknown option -z"),
        (["-Bz"], "goloop: unknown option -z"),
        (["-m"], "goloop: argument expected for the -m option"),
        (["-c"], "goloop: argument expected for the -c option"),
        (["-X"], "goloop: argument expected for the -X option"),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], words: str) -> None:
    done = run("-m", "goloop", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == words
    assert done.stderr.splitlines()[1].startswith("usage: python -m goloop")


@pytest.mark.parametrize("way", ["file", "module", "command", "stdin", "directory", "zip", "pyc"])
def test_the_loops_are_goloops(folder: Path, way: str) -> None:
    (folder / "loops.py").write_text(LOOP)
    (folder / "room" / "__main__.py").write_text(LOOP)
    with zipfile.ZipFile(folder / "loops.zip", "w") as archive:
        archive.writestr("__main__.py", LOOP)
    compileall.compile_file(str(folder / "loops.py"), quiet=1, legacy=True)
    arguments = {
        "file": ["loops.py"],
        "module": ["-m", "loops"],
        "command": ["-c", LOOP],
        "stdin": ["-"],
        "directory": ["room"],
        "zip": ["loops.zip"],
        "pyc": ["loops.pyc"],
    }[way]
    done = run("-m", "goloop", *arguments, cwd=folder, text=LOOP)
    assert done.stdout.startswith("<goloop.Loop running=True"), done.stderr
    assert done.stderr == ""
    assert run(*arguments, cwd=folder, text=LOOP).stdout.startswith("<_Unix")


def test_commands_end_quietly_where_their_output_is_not_read() -> None:
    commands = ["", "--help", "ps PID", "pstree PID", "slow PID"]
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, PROGRAMS / "command_asked.py"]
    with subprocess.Popen(program, stdin=-1, stdout=-1, text=True) as asked:
        assert asked.stdout is not None
        pid = asked.stdout.readline().strip()
        several = {
            each: subprocess.Popen(
                [sys.executable, "-m", "goloop", *each.replace("PID", pid).split()],
                stdout=writer,
                stderr=subprocess.PIPE,
            )
            for each in commands
        }
        os.close(writer)
        ended = {each: (run.communicate()[1], run.returncode) for each, run in several.items()}
        asked.communicate("\n")
    assert ended == dict.fromkeys(commands, (b"", 0))


def test_the_console_script_does_the_same(folder: Path) -> None:
    (folder / "loops.py").write_text(LOOP + TELL)
    script = folder / "other" / "goloop"
    script.write_text("import sys\nfrom goloop.__main__ import command\nsys.exit(command())\n")
    by_script = run(script, "loops.py", "a", cwd=folder).stdout
    by_module = run("-m", "goloop", "loops.py", "a", cwd=folder).stdout
    assert _comparable(by_script) == _comparable(by_module)
    assert by_script.startswith("<goloop.Loop")
    assert f"'{folder / 'other'}'" not in by_script
    done = run(script, "-Xdev", "-c", "import sys; print(sys.flags.dev_mode)", cwd=folder)
    assert done.stdout == "True\n", done.stderr


def test_classes_of_the_program_can_be_pickled(folder: Path) -> None:
    (folder / "pickles.py").write_text((PROGRAMS / "command_pickled.py").read_text())
    assert same("pickles.py", cwd=folder).stdout == "True\n"


def test_command_without_arguments_prints_diagnostics() -> None:
    done = run("-m", "goloop")
    assert f'"goloop": "{goloop.__version__}"' in done.stdout


# ---- commands and suggestions -------------------------------------------------------------------


@pytest.mark.parametrize("command", ["ps", "pstree", "top", "doctor", "compare"])
def test_each_command_has_help(command: str, tmp_path: Path) -> None:
    for arguments in ((command, "-h"), (command, "--help"), ("help", command)):
        told = run("-m", "goloop", *arguments, cwd=tmp_path)
        assert told.returncode == 0, told.stderr
        assert told.stdout.startswith(f"usage: python -m goloop {command} ")
        assert told.stderr == ""


def test_help_names_every_command(tmp_path: Path) -> None:
    told = run("-m", "goloop", "help", cwd=tmp_path)
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout == run("-m", "goloop", "--help", cwd=tmp_path).stdout
    for command in ("ps", "pstree", "top", "doctor", "compare", "help"):
        assert f"python -m goloop {command} " in told.stdout
    unknown = run("-m", "goloop", "help", "nothing", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "there is no command 'nothing'" in unknown.stderr


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("tpo", "there is no file and no command 'tpo'; did you mean 'top'?"),
        ("docter", "there is no file and no command 'docter'; did you mean 'doctor'?"),
        ("tell", "there is no file 'tell'; did you mean tell.py?"),
        ("json.tool", "there is no file 'json.tool'; to run the module: goloop -m json.tool"),
    ],
)
def test_unknown_word_gives_a_suggestion(folder: Path, word: str, meant: str) -> None:
    told = run("-m", "goloop", word, cwd=folder)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr == f"goloop: {meant}\n"


def test_unknown_word_without_a_similar_command_is_left_to_python(folder: Path) -> None:
    assert same("no_such_word", cwd=folder).returncode == 2
    # The name of a file is no misspelt "profile".
    assert same("nofile.py", cwd=folder).returncode == 2


@pytest.mark.parametrize("name", ["tpo", "help", "doctor"])
def test_a_file_with_the_name_of_a_command_is_run(folder: Path, name: str) -> None:
    (folder / name).write_text("print('the file')\n")
    assert run("-m", "goloop", name, cwd=folder).stdout == "the file\n"


# ---- tools that ask whether a module is imported already -----------------------------------------


@pytest.mark.parametrize("options", [(), ("-OO",)], ids=["", "OO"])
def test_pytest_does_not_warn_that_goloop_is_imported_before(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """pytest warns of packages with plugins, by the list of files of an installed wheel."""
    wheel = tmp_path / "site" / "goloop_wheel-1.dist-info"
    wheel.mkdir(parents=True)
    (wheel / "METADATA").write_text("Metadata-Version: 2.1\nName: goloop-wheel\nVersion: 1\n")
    (wheel / "entry_points.txt").write_text("[pytest11]\ngoloop = pytest_goloop\n")
    (wheel / "RECORD").write_text("goloop/__init__.py,,\npytest_goloop/__init__.py,,\n")
    ignored = "ignore:assertions not in test modules"  # which -OO takes away
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nfilterwarnings =\n  error\n  {ignored}\n")
    (tmp_path / "test_it.py").write_text("def test_it():\n    pass\n")
    path = os.pathsep.join([str(wheel.parent), os.environ.get("PYTHONPATH", "")])
    told = run(
        *options, "-m", "goloop", "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path,
        cwd=tmp_path, environment={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert told.returncode == 0, told.stdout + told.stderr
    assert "1 passed" in told.stdout
    assert "AssertRewrite" not in told.stdout + told.stderr
