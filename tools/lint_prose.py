"""A lint of comments, docstrings and pages: `python tools/lint_prose.py [FILE_OR_FOLDER...]`.

Without arguments it reads the paths listed in LINTED.  It reports three findings:

    opening   a comment or docstring that begins with a pronoun or a relative clause, where the
              noun it is about should stand
    word      a word of WORDS, each with the word to write in its place
    name      a comment directly above a function, type, constant or variable of Go that does not
              begin with its name, for example because of a rename

An exemption is a marker on the same line, with its reason: `prose: allow (quoted from the RFC)`.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The linted folders and files.
LINTED: list[str] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "benchmarks",
    "build_backend",
    "docs",
    "examples",
    "goloop",
    "netloop",
    "pybridge",
    "pytest_goloop",
    "tests",
    "timers",
    "tools",
    "transports",
]

# Relative paths that are never read: data of tests, generated files.
SKIPPED = re.compile(r"(^|/)(testdata|__pycache__|build|site)(/|$)")

OPENING = re.compile(
    r"(?:it|its|they|this|that|those|these|one|what|whatever|who|whoever|where|the same)\b(?!')",
    re.IGNORECASE,
)

WORDS = {
    r"whatever": "name the noun: any, every, all",
    r"whoever": "name the owner, caller or thread",
    r"nobody": "write: no thread, no caller, not",
    r"amid": "write: in, during, among",
    r"anew": "write: again",
    r"seldom": "write: rarely",
    r"hence": "write: therefore, so",
    r"likewise": "write: also, the same",
    r"that of": "repeat the noun",
    # Allowed for a position: "behind a proxy".
    r"(?<!falls )(?<!fall )(?<!fell )(?<!falling )(?<!lags )(?<!lag )(?<!lagging )behind"
    r"(?! (?:an? |the |its |nginx|NAT|HAProxy|Envoy)(?:[\w-]+ )?"
    r"(?:prox|balancer|firewall|server|router|gateway|NAT))": "write: after",
}
LISTED = [(re.compile(rf"\b{shape}\b", re.IGNORECASE), advice) for shape, advice in WORDS.items()]

ALLOWED = re.compile(r"prose: allow \(\w")

Text = tuple[int, str]  # the line on which a comment, a docstring or a page's paragraph starts

# Strings come first, so that a comment's mark inside of one is no comment.
_C = re.compile(
    r"\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`[^`]*`"
    r"|/\*(?P<block>.*?)\*/|(?P<lines>//[^\n]*(?:\n[ \t]*//[^\n]*)*)",
    re.DOTALL,
)


def c_comments(source: str) -> Iterator[Text]:
    """Comments of C and Go; a run of `//` lines is one comment."""
    for found in _C.finditer(source):
        text = found["block"] or found["lines"]
        if text is not None and not text.startswith("//go:"):
            text = re.sub(r"(?m)^[ \t]*(?://|\*(?!/))?", "", text)
            yield source.count("\n", 0, found.start()) + 1, text


def python_texts(source: str) -> Iterator[Text]:
    """Docstrings and comments of Python; a run of comment lines is one comment."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, text
    start, last, run = 0, -1, ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#")
        alone = not token.line[: token.start[1]].strip()
        if alone and token.start[0] == last + 1:
            run, last = f"{run}\n{text}", last + 1
            continue
        if run:
            yield start, run
        start, run = token.start[0], text
        last = start if alone else -1
    if run:
        yield start, run


def page_text(source: str) -> Iterator[Text]:
    """A page without its code, as one text."""
    bare = re.sub(
        r"```.*?```|`[^`\n]*`", lambda m: "\n" * m[0].count("\n"), source, flags=re.DOTALL
    )
    yield 1, bare


# A declaration of Go that is not in a group, with its names.
_GO_DECLARATION = re.compile(
    r"func (?:\([^)]*\) )?(?P<func>\w+)|(?:type|const|var) (?P<names>\w+(?:, \w+)*)"
)


def misnamed(source: str) -> Iterator[tuple[int, str]]:
    """Names of Go whose comment begins with another name, with the line of the comment.

    A test's name is a sentence, which its comment continues.
    """
    lines = source.splitlines()
    for index, line in enumerate(lines):
        found = _GO_DECLARATION.match(line)
        start = index
        while start > 0 and lines[start - 1].startswith("//"):
            start -= 1
        head = re.match(r"//(?!go:|export )\s*(?:(?:A|An|The) )?(\w*)", lines[start])
        if not found or not head:
            continue
        names = (found["func"] or found["names"]).split(", ")
        if head[1] not in names and not re.match(r"_$|(?:Test|Benchmark|Fuzz)\w", names[0]):
            yield start + 1, names[0]


def findings(path: Path) -> Iterator[str]:
    """Findings of one file, as `path:line: rule: advice`."""
    source = path.read_text(encoding="utf-8")
    read = {".py": python_texts, ".md": page_text}.get(path.suffix, c_comments)
    lines = source.splitlines()
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    for start, text in read(source):
        head = text.lstrip(" *\n")
        first = start + text[: len(text) - len(head)].count("\n")
        opening = None if path.suffix == ".md" else OPENING.match(head)
        if opening and not ALLOWED.search(lines[first - 1]):
            yield f"{name}:{first}: opening: begins with {opening[0]!r}, name the noun"
        for shape, advice in LISTED:
            for word in shape.finditer(text):
                line = start + text.count("\n", 0, word.start())
                if not ALLOWED.search(lines[line - 1]):
                    yield f"{name}:{line}: word: {word[0]!r}, {advice}"
    if path.suffix == ".go":
        for line, declared in misnamed(source):
            if not ALLOWED.search(lines[line - 1]):
                yield f"{name}:{line}: name: begin with {declared!r}"


def files(paths: list[str]) -> Iterator[Path]:
    """Files of the languages and pages below the paths."""
    for each in paths:
        path = ROOT / each
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            readable = file.suffix in (".py", ".c", ".h", ".go", ".md")
            if readable and not SKIPPED.search(file.relative_to(path.parent).as_posix()):
                yield file


def main(paths: list[str]) -> int:
    """Prints every finding of the paths; returns 1 if there is one."""
    found = [line for path in files(paths or LINTED) for line in findings(path)]
    print("\n".join([*found, f"{len(found)} findings"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
