"""Go's mirror of the header that C and Go share."""

from __future__ import annotations

import pytest

import go_mirror


def test_go_mirror_matches_the_header() -> None:
    for path, content in go_mirror.files().items():
        assert path.read_text() == content, f"run tools/go_mirror.py: {path.name} is out of date"


def test_unsupported_c_declarations_are_refused() -> None:
    text = "typedef struct gl_x {\n    %s;\n} gl_x;"
    assert go_mirror.structs(text % "uint64_t a, *b")["gl_x"] == [
        ("uint64_t", "", "a", ""),
        ("uint64_t", "*", "b", ""),
    ]
    for member in ("void (*f)(void)", "uint32_t bit : 1"):
        with pytest.raises(ValueError, match="gl_x"):
            go_mirror.structs(text % member)
    with pytest.raises(ValueError, match="has no Go type for long"):
        go_mirror.mirror(text % "long a")
