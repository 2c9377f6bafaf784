"""The check that compiles each C file alone, on small trees that lean on each other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("setuptools", reason="it knows the extension's flags")

ROOT = Path(__file__).resolve().parents[2]

sys.path.append(str(ROOT / "tools"))

import units  # noqa: E402

CLEAN = {
    "linkage.h": """
        #pragma once
        #ifdef GL_AMALGAMATION
        #define GL_PRIVATE static
        #else
        #define GL_PRIVATE
        #endif
    """,
    "state/state.h": """
        #pragma once
        #include "linkage.h"
        #include <stdint.h>
        typedef struct gl_loop { int fd; } gl_loop;
        GL_PRIVATE int32_t gl_loop_fd(gl_loop *loop);
    """,
    "state/state.c": """
        #include "state/state.h"
        #include <Python.h>
        static int its_own(int fd) { return fd + 1; }
        GL_PRIVATE int32_t
        gl_loop_fd(gl_loop *loop)
        {
            return Py_IsInitialized() ? its_own(loop->fd) : -1;
        }
    """,
    # Also what module.c sees of Python.h.
    "loop/loop.h": """
        #pragma once
        #include <Python.h>
        #include "state/state.h"
        GL_PRIVATE int gl_loop_run(gl_loop *loop);
    """,
    "loop/run.c": """
        #include "loop/loop.h"
        GL_PRIVATE int gl_loop_run(gl_loop *loop) { return gl_loop_fd(loop); }
    """,
    "module.c": """
#define GL_AMALGAMATION
#include "state/state.c"
#include "loop/run.c"
PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) { return gl_loop_run(0) ? NULL : Py_None; }
    """,
}


def check(tmp_path: Path, **changed: str) -> list[str]:
    """What is wrong with the tree where some files are others; `state_c` is state/state.c."""
    names = {"state_c": "state/state.c", "state_h": "state/state.h", "run_c": "loop/run.c"}
    tree = CLEAN | {names.get(name, name): text for name, text in changed.items()}
    for path, text in tree.items():
        (tmp_path / "core" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "core" / path).write_text(text)
    (tmp_path / "out").mkdir()
    found: list[str] = units.Units(tmp_path / "core", tmp_path / "out").check()
    return found


def test_files_that_stand_alone(tmp_path: Path) -> None:
    assert check(tmp_path) == []
    assert (tmp_path / "out" / "core.so").exists()


def test_a_file_that_leans_on_what_stands_before_it(tmp_path: Path) -> None:
    text = CLEAN["loop/run.c"].replace("gl_loop_fd(loop)", "its_own(loop->fd)")
    (wrong,) = check(tmp_path, run_c=text)
    assert "its_own" in wrong
    assert wrong.endswith("loop/run.c does not compile alone")


def test_a_header_that_leans_on_its_includers(tmp_path: Path) -> None:
    text = CLEAN["state/state.h"].replace("#include <stdint.h>", "")
    source = CLEAN["state/state.c"].replace("#include", "#include <stdint.h>\n#include", 1)
    wrong = check(tmp_path, state_h=text, state_c=source)
    assert "state/state.h does not compile alone" in [line.split("\n")[-1] for line in wrong]


def test_a_header_without_a_guard(tmp_path: Path) -> None:
    wrong = check(tmp_path, state_h=CLEAN["state/state.h"].replace("#pragma once", ""))
    assert "state/state.h does not compile alone" in [line.split("\n")[-1] for line in wrong]


def test_a_module_that_leans_on_the_files_it_includes(tmp_path: Path) -> None:
    text = CLEAN["module.c"].replace("gl_loop_run(0)", "its_own(0)")
    (wrong,) = check(tmp_path, **{"module.c": text})
    assert wrong.endswith("module.c does not compile alone")
    # The place is that in the file itself.
    assert f"{tmp_path}/core/module.c:6:" in wrong


def test_a_function_that_no_header_declares(tmp_path: Path) -> None:
    text = CLEAN["loop/run.c"] + "GL_PRIVATE int gl_more(void) { return 1; }"
    (wrong,) = check(tmp_path, run_c=text)
    assert "missing-prototypes" in wrong


def test_a_definition_that_differs_from_its_declaration(tmp_path: Path) -> None:
    text = CLEAN["state/state.c"].replace("gl_loop *loop", "gl_loop *loop, int more")
    (wrong,) = check(tmp_path, state_c=text)
    assert "conflicting types" in wrong


def test_a_declaration_without_a_definition(tmp_path: Path) -> None:
    header = CLEAN["state/state.h"] + "GL_PRIVATE int later(void);"
    text = CLEAN["loop/run.c"].replace("gl_loop_fd(loop)", "later()")
    wrong = check(tmp_path, state_h=header, run_c=text)
    assert wrong == ["later is declared and used, and no file defines it"]


def test_two_definitions_of_a_name(tmp_path: Path) -> None:
    (wrong,) = check(tmp_path, **{"loop/again.c": CLEAN["loop/run.c"]})
    assert "gl_loop_run" in wrong
    assert wrong.endswith("the files do not link")


def test_the_status_tells_of_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(tmp_path)
    command = [str(tmp_path / "core")]
    assert units.main(command) == 0
    assert capsys.readouterr().out == f"{len(CLEAN)} files, 0 failures\n"
    (tmp_path / "core" / "loop" / "run.c").write_text("oops")
    assert units.main(command) == 1
    assert "loop/run.c does not compile alone\n" in capsys.readouterr().out
    (tmp_path / "empty").mkdir()
    assert units.main([str(tmp_path / "empty")]) == 1
