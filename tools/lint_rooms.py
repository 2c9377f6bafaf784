"""A lint for the rooms of the C extension: `python tools/lint_rooms.py [PYBRIDGE]`.

The folders of pybridge/core are rooms with one door each, the public header
`<room>/<room>.h`.  A room knows those above it in ROOMS and none below; what it
offers them begins with gl_ and stands in its header, what is its own does neither.
So who reads a room knows what may call into it, and the compiler, which sees one
translation unit, need not be the only one that does.

Like lint_c.py, whose parser this uses, it reads the text and not a syntax tree.
Where a rule is rightly broken, a comment on the line or the one above gives the
reason, after `lint: allow` and the rule's name:

    /* lint: allow mutable-static: written once, before there is a second thread */

The table RULES at the end names the rules; their doc comments explain them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

import lint_c
from lint_c import Finding, Source

# ---- the house ------------------------------------------------------------------

CORE = "core"
GOLIB = "golib/"
# In order: a room may include the public headers of those above it.
ROOMS = (
    "runtime",
    "support",
    "state",
    "tasks",
    "watch",
    "transports",
    "tls",
    "loop",
)
# Below all rooms; the one file that includes .c files.
MODULE = "module.c"
# What every room may include: the contract with Go, and how the files are linked.
SHARED = ("abi.h", "linkage.h")
# What leaves its room begins so.
PREFIX = "gl_"

FILE_LINES = 600
FUNCTION_LINES = 60  # from brace to brace
# All C of the product: pybridge/core, pybridge/golib and abi.h.  It only shrinks: CONTRIBUTING.md,
# "What a new mechanism must be worth".
PRODUCT_LINES = 21_997

# ---- reading the tree ----------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """What stands at file scope up to a semicolon, braces emptied; its offset."""

    text: str
    start: int


@dataclass(frozen=True)
class File:
    """A file of the tree; `room` is "" for what belongs to none."""

    path: str  # from pybridge on
    room: str
    source: Source

    @property
    def name(self) -> str:
        """As an include directive names it: from core on."""
        return self.path.removeprefix(CORE + "/")

    @cached_property
    def includes(self) -> list[tuple[int, str]]:
        """The lines and names of its `#include "..."`."""
        shape = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.MULTILINE)
        text = self.source.text
        return [
            (text.count("\n", 0, found.start()) + 1, found[1]) for found in shape.finditer(text)
        ]

    @cached_property
    def statements(self) -> list[Statement]:
        """Its declarations and definitions, but for the functions' bodies."""
        code = self.source.code
        flat = list(code)
        bodies = {function.start - 1 for function in self.source.functions}
        offset = 0
        while (found := re.compile(r"[({]").search(code, offset)) is not None:
            opened = found.start()
            closed = lint_c.closing(code, opened)
            # A pointer to a function keeps its name, (*name)(...).
            if re.match(r"\(\s*\*", code[opened:]) is None:
                flat[opened + 1 : closed] = " " * (closed - opened - 1)
            if opened in bodies:  # a definition ends without a semicolon
                flat[closed : closed + 1] = ";"
            offset = closed + 1
        return [
            Statement(found.group(), found.start())
            for found in re.finditer(r"[^;\s][^;]*", "".join(flat))
        ]

    @cached_property
    def declared(self) -> set[str]:
        """The functions and objects that it declares or defines at file scope."""
        return {name for each in self.statements for name in _named(each.text)}

    @cached_property
    def defined(self) -> list[tuple[str, int]]:
        """The functions and objects that it defines, each with its line."""
        bodies = {function.name for function in self.source.functions}
        found = []
        for each in self.statements:
            if not _is_declaration(each.text) and (_function(each.text) or "") in {"", *bodies}:
                found += [(name, self.line(each, name)) for name in _named(each.text)]
        return found

    def line(self, statement: Statement, name: str) -> int:
        """The line of a name in a statement."""
        found = re.search(rf"\b{name}\b", statement.text)
        return self.source.line(statement.start + (found.start() if found else 0))

    @cached_property
    def macros(self) -> dict[str, set[str]]:
        """The words of its macros' bodies."""
        shape = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:\\\n|[^\n])*)", re.MULTILINE)
        text = re.sub(r"/\*.*?\*/", " ", self.source.text, flags=re.DOTALL)
        words = re.compile(r"[A-Za-z_]\w*")
        return {found[1]: set(words.findall(found[2])) for found in shape.finditer(text)}

    @cached_property
    def words(self) -> set[str]:
        """The names in its code, but for those of members."""
        return set(re.findall(r"(?<![\w.])(?<!->)[A-Za-z_]\w*", self.source.code))

    def has_local(self, name: str) -> bool:
        """Whether it has a variable, a parameter or a field of this name."""
        not_types = r"(?!(?:return|goto|case|else|sizeof)\b)"
        shape = (
            rf"\b{not_types}[A-Za-z_]\w*[\s*]+\b{name}\s*(?:=(?!=)|[;\[,)])"  # after a type
            rf"|,\s*\*+\s*{name}\s*[=;,\[]|,\s*{name}\s*(?:=(?!=)|;)"  # a further declarator
            rf"|\(\s*\*\s*{name}\s*\)"  # a pointer to a function
        )
        return name not in self.declared and re.search(shape, self.source.code) is not None


def _is_declaration(statement: str) -> bool:
    return re.match(r"(?:extern|GL_PRIVATE_DATA)\b", statement) is not None


def _plain(statement: str) -> str:
    """A statement without what hides its shape."""
    text = re.sub(r"\b(?:__attribute__|_Alignas)\s*\(\s*\)", " ", statement)
    # The call of a macro that defines something, for which there is no semicolon.
    text = re.sub(r"^(?:[A-Z][A-Z0-9_]+\s*\(\s*\)\s)+", " ", text.strip())
    return re.sub(r"\b_Atomic\s*\(\s*\)", "_Atomic int ", text).strip()


def _function(statement: str) -> str | None:
    """The function that a statement declares or defines."""
    text = _plain(statement)
    if re.match(r"typedef\b|_Static_assert\b", text):
        return None
    # After a type; without one it is a macro's call.
    found = re.match(r"[A-Za-z_][\w\s*]*[\s*]([A-Za-z_]\w*)\s*\(\s*\)", text)
    return found[1] if found is not None else None


def _objects(statement: str) -> list[str]:
    """The objects that a statement declares or defines."""
    text = _plain(statement)
    if re.match(r"typedef\b|_Static_assert\b", text) or _function(text) is not None:
        return []
    if re.fullmatch(r"(?:struct|union|enum)\s+\w+", text):  # a type that is defined elsewhere
        return []
    # A type of its own, with or without objects after it.
    text = re.sub(r"\b(struct|union|enum)\b(?:\s+\w+)?\s*\{\s*\}", "tag", text)
    pointer = re.match(r"[\w\s*]+\(\s*\*+\s*(?:const\s+)?(\w+)\s*(?:\[[^\]]*\])?\s*\)", text)
    if pointer is not None:
        return [pointer[1]]
    if re.match(r"\w+[\s*]+\w", text) is None:
        return []
    declarators = re.sub(r"\{[^}]*\}", "", text).split(",")
    shape = re.compile(r"(?:^|[\s*])([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*(?:=.*)?$", re.DOTALL)
    return [found[1] for each in declarators if (found := shape.search(each)) is not None]


def _named(statement: str) -> list[str]:
    """What a statement declares or defines."""
    name = _function(statement)
    return _objects(statement) if name is None else [name]


@dataclass
class House:
    """All files, and what they declare."""

    files: dict[str, File]
    _rooms: dict[str, list[File]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for file in self.files.values():
            self._rooms.setdefault(file.room, []).append(file)

    def room(self, name: str) -> list[File]:
        """The files of a room."""
        return self._rooms.get(name, [])

    def door(self, room: str) -> list[File]:
        """The public header of a room, and what of its room that includes."""
        wanted, found = [f"{CORE}/{room}/{room}.h"], list[File]()
        while wanted:
            file = self.files.get(wanted.pop())
            if file is not None and file not in found:
                found.append(file)
                own = [name for _, name in file.includes if name.startswith(f"{room}/")]
                wanted += [f"{CORE}/{name}" for name in own]
        return found

    @cached_property
    def macros(self) -> dict[str, set[str]]:
        """What each macro of the tree stands for in the end."""
        direct: dict[str, set[str]] = {}
        for file in self.files.values():
            for name, words in file.macros.items():
                direct.setdefault(name, set()).update(words)
        whole: dict[str, set[str]] = {}
        for name in direct:
            seen, wanted = set[str](), [name]
            while wanted:
                for word in direct.get(wanted.pop(), set()) - seen:
                    seen.add(word)
                    wanted.append(word)
            whole[name] = seen
        return whole

    @cached_property
    def used_in(self) -> dict[str, set[str]]:
        """For each name that a room defines, the rooms that use it, by way of macros too."""
        found: dict[str, set[str]] = {
            name: set() for file in self.files.values() for name, _ in file.defined
        }
        # Functions of Go's, which macros make members of.
        pointers = re.compile(r"\(\s*\*\s*(\w+)\s*\)")
        members = {
            name
            for file in self.files.values()
            if not file.room
            for name in pointers.findall(file.source.code)
        }
        for file in self.files.values():
            if not file.room:
                continue
            own = {word for word in file.words & found.keys() if not file.has_local(word)}
            by_macro = {
                word
                for macro in file.words & self.macros.keys()
                for word in self.macros[macro] & found.keys()
            }
            for word in own | by_macro:
                if word not in members or word in file.declared:
                    found[word].add(file.room)
        return found


def house(texts: dict[str, str]) -> House:
    """The files of pybridge by their paths from there."""
    files = {}
    for path, text in texts.items():
        parts = PurePosixPath(path).parts
        room = ""
        if parts[0] == CORE:
            room = parts[1] if len(parts) > 2 or parts[1] == MODULE else ""
        files[path] = File(path, room, lint_c.parse(path, text))
    return House(files)


def read(pybridge: Path) -> dict[str, str]:
    """The texts of the product's C."""
    paths = [pybridge / "abi.h", *pybridge.glob("golib/*.[ch]")]
    paths += pybridge.rglob(f"{CORE}/**/*.[ch]")
    return {
        path.relative_to(pybridge).as_posix(): path.read_text()
        for path in sorted(set(paths))
        if path.exists()
    }


# ---- rules ------------------------------------------------------------------------------

Hits = Iterator[tuple[File, int, str]]  # the line, and what is wrong there


def include(tree: House) -> Hits:
    """A file includes headers of its own room, the doors of those above, and what all share.

    Each room has one door, `<room>/<room>.h`, and everybody names a header by its room.
    Only module.c, the amalgamation, includes .c files.
    """
    for file in tree.files.values():
        if file.path.startswith(CORE + "/") and not file.room and file.name not in SHARED:
            yield file, 1, f"{file.name} is in no room"
        elif file.room and file.room not in (*ROOMS, MODULE):
            yield file, 1, f"{file.room} is no room: they are {', '.join(ROOMS)}"
        for line, name in file.includes:
            wrong = _include(tree, file, name)
            if wrong is not None:
                yield file, line, wrong
    for room in ROOMS:
        files = tree.room(room)
        if files and f"{CORE}/{room}/{room}.h" not in tree.files:
            yield files[0], 1, f"the room has no {room}/{room}.h"


def _include(tree: House, file: File, name: str) -> str | None:
    room = PurePosixPath(name).parts[0]
    if file.path.startswith(GOLIB):  # where a header stands beside the file that includes it
        return f"{name} is the extension's" if room in ROOMS else None
    if name in SHARED or (name.endswith(".h") and room == "golib"):
        return None
    if room not in ROOMS or "/" not in name:
        return f"{name} is no header of a room: name it <room>/<header>.h"
    if file.room == MODULE:
        if name.endswith(".c"):
            return None
    elif name.endswith(".c"):
        return f"{name} is included by {MODULE} alone"
    elif file.room == room:
        return None
    elif file.room not in ROOMS or ROOMS.index(room) > ROOMS.index(file.room):
        return f"{room} is a room below"
    if name != f"{room}/{room}.h":
        return f"{name} is private to {room}: the door is {room}/{room}.h"
    return None


def names(tree: House) -> Hits:
    """What is used in another room begins with gl_ and stands in its room's public header.

    And the other way round: gl_ says that a name may be used elsewhere, so what stands in
    no public header goes without.
    """
    homes: dict[str, set[str]] = {}
    for file in tree.files.values():
        for name, _ in file.defined:
            homes.setdefault(name, set()).add(file.room)
    for room in (*ROOMS, MODULE):
        public = {name for file in tree.door(room) for name in file.declared}
        for file in tree.room(room):
            for name, line in file.defined:
                others = sorted(tree.used_in[name] - homes[name])
                prefixed = name.startswith(PREFIX)
                if others and not prefixed:
                    yield file, line, f"{name} is used in {others[0]}: it wants {PREFIX} before it"
                elif others and name not in public:
                    yield file, line, f"{name} is used in {others[0]}, and not in {room}/{room}.h"
                elif prefixed and name not in public:
                    yield file, line, f"{name} does not leave {room}: it wants no {PREFIX}"


# What CPython reads and nobody writes, and has no const in the API.
_TABLES = re.compile(
    r"\b(?:PyMethodDef|PyGetSetDef|PyMemberDef|PyType_Slot|PyType_Spec|PyModuleDef|PyModuleDef_Slot"
    r"|PyAsyncMethods|PyNumberMethods|PyBufferProcs|PyStructSequence_Field|PyStructSequence_Desc)\b"
)


def _is_constant(text: str) -> bool:
    """Whether the object that a declaration makes can't change, or is a thread's own."""
    before = text.partition("=")[0]
    if _TABLES.search(before) or re.search(r"\b(?:_Thread_local|__thread)\b", before):
        return True
    # The names of a function's arguments, as PyArg_ParseTupleAndKeywords wants them.
    if re.match(r"(?:static\s+)?char\s*\*\s*\w+\s*\[\s*\]\s*$", before) and "=" in text:
        return True
    # Of a pointer, the one after the last star is the object's own.
    return re.search(r"\bconst\b[^*]*$", before) is not None


def mutable_static(tree: House) -> Hits:
    """No object at file scope, nor a function's static one, changes at run time.

    What does belongs to a loop, to the module's state or to a thread, where the comment of
    its field says who may touch it.
    """
    for file in tree.files.values():
        if not file.path.startswith(CORE + "/"):
            continue
        for statement in file.statements:
            if _is_declaration(statement.text) or _is_constant(statement.text):
                continue
            for name in _objects(statement.text):
                yield file, file.line(statement, name), f"{name} can change at run time"
        for function in file.source.functions:
            for found in re.finditer(r"(?<!\w)static\s+([^;{]*)", function.body):
                last = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*(?:=|$)", found[1].strip())
                if last is not None and not _is_constant(found[1]):
                    line = file.source.line(function.start + found.start())
                    yield file, line, f"{last[1]} of {function.name} can change at run time"


def size(tree: House) -> Hits:
    """No file, no function and not the whole is larger than a reader can hold."""
    total = 0
    for file in tree.files.values():
        lines = len(file.source.text.splitlines())
        total += lines
        if lines > FILE_LINES:
            yield file, 1, f"{lines} lines, and {FILE_LINES} are the most of a file"
        for function in file.source.functions:
            length = function.body.count("\n") + 1
            if length > FUNCTION_LINES:
                what = f"{function.name} has {length} lines, and {FUNCTION_LINES} are the most"
                yield file, file.source.line(function.start), what
    if total > PRODUCT_LINES:
        what = f"the product's C has {total} lines, and {PRODUCT_LINES} are the most"
        yield next(iter(tree.files.values())), 1, what


RULES: dict[str, Callable[[House], Hits]] = {
    "include": include,
    "names": names,
    "mutable-static": mutable_static,
    "size": size,
}

# ---- running ----------------------------------------------------------------------------


def lint(texts: dict[str, str]) -> list[Finding]:
    """All findings in the files of pybridge, by their paths from there."""
    tree = house(texts)
    findings = set()
    for rule, look in RULES.items():
        for file, line, what in look(tree):
            if not lint_c.allowed(file.source.text, line, rule):
                findings.add(Finding(file.path, line, rule, what))
    return sorted(findings, key=lambda finding: (finding.path, finding.line, finding.text))


def main(arguments: list[str]) -> int:
    """Lints a folder like pybridge; the status is 1 where anything was found."""
    pybridge = Path(arguments[0] if arguments else "pybridge")
    texts = read(pybridge)
    findings = lint(texts)
    for finding in findings:
        print(f"{pybridge}/{finding}")
    print(f"{len(texts)} files, {len(findings)} findings")
    return 1 if findings or not texts else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
