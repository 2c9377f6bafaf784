"""A lint for misuse of Python's C API: `python tools/lint_c.py [FILE_OR_FOLDER...]`.

Without arguments it reads the paths listed in LINTED.

Each rule finds a kind of bug that compiles, passes the usual tests and crashes
later.  The rules read the text, not a syntax tree: comments, strings and
preprocessor lines are replaced by spaces, functions are delimited by their
braces, and each rule searches for one pattern.  If the pattern is correct in
an exceptional case, a comment on the line or the line above exempts it, with
the reason:

    /* lint: allow decref-field: the object is not reachable yet */

The table RULES at the end names the rules; their docstrings explain them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# The paths that this lint, lint_flow.py and lint_style.py read if they get no others.
_PATHS = ("core", "golib", "abi.h", "abi_observers.h")
LINTED = [os.path.relpath(ROOT / "pybridge" / path) for path in _PATHS]


@dataclass(frozen=True)
class Finding:
    """A violation of a rule; `line` counts from 1."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclass(frozen=True)
class Function:
    """A function's name, its body without the outer braces, and the body's offset."""

    name: str
    body: str
    start: int


@dataclass(frozen=True)
class Source:
    """A file; `code` is its text with spaces in place of comments, strings and preprocessor."""

    path: str
    text: str
    code: str
    functions: tuple[Function, ...]

    def line(self, offset: int) -> int:
        """Returns the line number of an offset."""
        return self.code.count("\n", 0, offset) + 1


Hits = Iterator[tuple[int, str]]  # offsets into the code, and descriptions of the faults

# ---- reading C ----------------------------------------------------------------

_NOT_CODE = re.compile(
    r"""
      /\*.*?\*/                        # a comment
    | //[^\n]*
    | "(?:\\.|[^"\\\n])*"              # a string
    | '(?:\\.|[^'\\\n])*'
    | ^[ \t]*\#(?:\\\n|[^\n])*         # a preprocessor line, continued ones included
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def blank(text: str) -> str:
    """Returns the text with spaces in place of comments, strings and preprocessor lines."""
    return _NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)


def closing(code: str, opened: int) -> int:
    """Returns the offset of the bracket that closes the bracket at `opened`, or the end."""
    depth = 0
    for offset in range(opened, len(code)):
        if code[offset] in "({[":
            depth += 1
        elif code[offset] in ")}]":
            depth -= 1
            if depth == 0:
                return offset
    return len(code)


def parse(path: str, text: str) -> Source:
    """Parses a file into functions."""
    code = blank(text)
    functions = []
    offset = 0
    head = re.compile(r"\b([A-Za-z_]\w*)\s*\(|\{")
    while (found := head.search(code, offset)) is not None:
        if found.group() == "{":  # of a struct, an enum, an array
            offset = closing(code, found.start()) + 1
            continue
        after = closing(code, found.end() - 1) + 1
        body = re.compile(r"\s*\{").match(code, after)
        if body is None:
            offset = after
            continue
        end = closing(code, body.end() - 1)
        functions.append(Function(found.group(1), code[body.end() : end], body.end()))
        offset = end + 1
    return Source(path, text, code, tuple(functions))


# ---- rules ----------------------------------------------------------------------


def return_singleton(source: Source) -> Hits:
    """`return Py_None;` returns a reference without incrementing its count.

    Py_RETURN_NONE, Py_NewRef, or a Py_INCREF in the preceding statement are correct.  A
    function that returns a field returns a borrowed reference, also for None.
    """
    shape = re.compile(
        r"\breturn\s+(?:\(PyObject \*\)\s*)?(Py_None|Py_True|Py_False|Py_NotImplemented)\s*;"
    )
    for function in source.functions:
        if re.search(r"\breturn\s+\w+->\w+\s*;", function.body):
            continue
        for found in shape.finditer(function.body):
            before = function.body[: found.start()].rstrip()
            if not re.search(rf"Py_INCREF\(\s*{found[1]}\s*\)\s*;$", before):
                yield function.start + found.start(), f"{found[1]} is returned without a reference"


_BORROWS = (
    r"PyList_GetItem|PyList_GET_ITEM|PyDict_GetItem\w*|PyWeakref_GetObject|PyWeakref_GET_OBJECT"
    r"|_PyDict_GetItem\w*"
)
_RUNS_PYTHON = re.compile(
    r"\b(?:PyObject_(?:Call\w*|Vectorcall\w*|GetAttr\w*|SetAttr\w*|DelAttr\w*|IsTrue|Not"
    r"|RichCompare\w*|Repr|Str|Hash|GetItem|SetItem|DelItem|GetIter|Size|Length)"
    r"|PyIter_Next|PyIter_Send|Py_X?DECREF|Py_CLEAR|Py_X?SETREF|PyList_SetItem|PyList_SetSlice"
    r"|PyDict_SetItem\w*|PyDict_DelItem\w*|PyErr_WriteUnraisable|PyEval_\w+"
    r"|Py_(?:BEGIN|END)_ALLOW_THREADS)\b"
)


def borrowed_across_call(source: Source) -> Hits:
    """A reference borrowed from a list, dict or weakref, used after Python code ran.

    The Python code may have changed the container and so freed the object.  Tuples
    are safe, because their items can't be removed.
    """
    for function in source.functions:
        body = function.body
        for taken in re.finditer(rf"\b(\w+)\s*=\s*(?:\([^()]*\)\s*)?(?:{_BORROWS})\s*\(", body):
            name = re.escape(taken[1])
            start = closing(body, taken.end() - 1) + 1
            # Up to the statement that takes a reference (itself a use), or that assigns
            # another value to the variable.
            safe = re.compile(
                rf"(Py_X?INCREF\(\s*{name}\s*\)|Py_X?NewRef\(\s*{name}\s*\))|\b{name}\s*=[^=]"
            ).search(body, start)
            end = len(body)
            if safe is not None:
                end = safe.end() if safe[1] else safe.start()
            end = min(end, _block(body, taken.start())[1])
            use = _use_after_call(body, name, start, end)
            if use is not None:
                yield (
                    function.start + use,
                    f"{taken[1]} is borrowed, and Python code ran since it was",
                )


def _use_after_call(body: str, name: str, start: int, end: int) -> int | None:
    for call in _RUNS_PYTHON.finditer(body, start, end):
        if re.match(r"\s*\(", body[call.end() :]):
            after = closing(body, body.index("(", call.end())) + 1
        else:
            after = call.end()
        # A call on a path that leaves the function does not precede the code below.
        line_start = max(body.rfind(mark, 0, call.start()) for mark in ";{}") + 1
        if re.search(r"\b(return|goto)\b", body[line_start : call.start()]):
            continue
        block_start, block_end = _block(body, call.start())
        leaves = re.search(
            r"\b(?:return|goto|break|continue)\b[^;]*;\s*$", body[block_start:block_end]
        )
        limit = min(end, block_end) if leaves else end
        use = re.compile(rf"(?<![.>\w]){name}\b").search(body, after, limit)
        if use is not None:
            return use.start()
    return None


def _block(body: str, offset: int) -> tuple[int, int]:
    """Returns the range of the innermost braces around an offset, or of the whole body."""
    depth = 0
    for start in range(offset - 1, -1, -1):
        if body[start] == "}":
            depth += 1
        elif body[start] == "{":
            if depth == 0:
                return start + 1, closing(body, start)
            depth -= 1
    return 0, len(body)


def decref_field(source: Source) -> Hits:
    """`Py_DECREF(self->field)` leaves a dangling pointer in the field while destructors run.

    Py_CLEAR and Py_XSETREF clear or replace the field first.  In a dealloc the object
    is unreachable for other code, and a struct on the stack always is.
    """
    for function in source.functions:
        if re.search(r"dealloc|_free$", function.name):
            continue
        for found in re.finditer(r"\bPy_X?DECREF\(\s*(\w[\w.]*->\w[\w.>-]*)\s*\)", function.body):
            yield function.start + found.start(), f"{found[1]} still points to the released object"


# Fields that are valid only as a pair.
_PAIRS = ("callback0", "context0", "exception", "exception_tb")


def paired_fields(source: Source) -> Hits:
    """`Py_CLEAR(f->callback0)` releases one half of a pair: a destructor can see the other.

    Correct code clears or replaces both fields first, and releases the objects afterwards.
    In a clear function the whole object is garbage.
    """
    shape = re.compile(rf"\bPy_(?:CLEAR|X?SETREF)\(\s*\w+->({'|'.join(_PAIRS)})\b")
    for function in source.functions:
        if function.name.endswith("_clear"):
            continue
        for found in shape.finditer(function.body):
            yield (
                function.start + found.start(),
                f"{found[1]} is released before the pair is cleared",
            )


def gc_new_untracked(source: Source) -> Hits:
    """Objects from PyObject_GC_New are unknown to the collector before PyObject_GC_Track."""
    for function in source.functions:
        made = re.search(r"\bPyObject_GC_New(?:Var)?\s*\(", function.body)
        if made and not re.search(r"\b_?PyObject_GC_(?:Track|TRACK)\s*\(", function.body):
            yield function.start + made.start(), "the new object is never tracked"


def _slot(source: Source, slot: str) -> Iterator[Function]:
    """Returns the functions in a slot of the PyType_Specs of this file."""
    names = re.findall(rf"\{{\s*{slot}\s*,\s*(?:\([^()]*\)\s*)?&?(\w+)\s*\}}", source.code)
    for function in source.functions:
        if function.name in names:
            yield function


def traverse_type(source: Source) -> Hits:
    """An instance of a heap type owns its type; a traverse without it leaks the module.

    A subtype's traverse may call its base's traverse, which visits the type.
    """
    for function in _slot(source, "Py_tp_traverse"):
        if not re.search(r"\bPy_VISIT\(\s*Py_TYPE\(|\b\w+_traverse\(", function.body):
            yield function.start, f"{function.name} does not visit Py_TYPE(self)"


def dealloc_type(source: Source) -> Hits:
    """The dealloc of a heap type releases the instance's reference to its type."""
    for function in _slot(source, "Py_tp_dealloc"):
        types = re.findall(r"\b(\w+)\s*=\s*Py_TYPE\(", function.body)
        names = "|".join([*map(re.escape, types), r"Py_TYPE\(\s*\w+\s*\)"])
        if not re.search(rf"\bPy_DECREF\(\s*(?:\([^()]*\)\s*)?(?:{names})\s*\)", function.body):
            yield function.start, f"{function.name} does not release the type"


def dealloc_untrack(source: Source) -> Hits:
    """The dealloc of a type with GC must untrack the object before it clears fields."""
    if not re.search(r"\bPy_TPFLAGS_HAVE_GC\b", source.code):
        return
    collected = {function.name for function in _slot(source, "Py_tp_traverse")}
    for function in _slot(source, "Py_tp_dealloc"):
        stem = function.name.removesuffix("_dealloc")
        if f"{stem}_traverse" not in collected:
            continue
        if not re.search(r"\b_?PyObject_GC_(?:UnTrack|UNTRACK)\s*\(", function.body):
            yield function.start, f"{function.name} does not untrack the object"


def python_without_gil(source: Source) -> Hits:
    """Code without the GIL must not use Python objects, and must not return or jump out.

    The locks of PyThread are allowed: they are for waiting without the GIL.
    """
    region = re.compile(r"\bPy_BEGIN_ALLOW_THREADS\b(.*?)\bPy_END_ALLOW_THREADS\b", re.DOTALL)
    inside = re.compile(
        r"\b(_?Py(?!_UN?BLOCK_THREADS|Thread_\w+_lock)[A-Z_]\w*)\s*\(|\b(return|goto)\b"
    )
    for found in region.finditer(source.code):
        for use in inside.finditer(found[1]):
            fault = f"{use[1]} is called" if use[1] else f"{use[2]} leaves"
            yield found.start(1) + use.start(), f"{fault} without the GIL"


def forbidden(call: str, fault: str) -> Callable[[Source], Hits]:
    """Returns a rule against a call, which a regular expression describes."""

    def look(source: Source) -> Hits:
        return ((found.start(), fault) for found in re.finditer(call, source.code))

    return look


Rules = Mapping[str, Callable[[Source], Hits]]

RULES: Rules = {
    # After a call of OpenSSL's functions, a second call for the error's message may continue the
    # operation that the first refused.
    "asks-again": forbidden(
        r"\bPyObject_CallMethod\w*\(\s*(?:t->)?(?:sslobj|inner)\b",
        "a method of the SSLObject is called; get the error by openssl_take_error",
    ),
    "return-singleton": return_singleton,
    "borrowed-across-call": borrowed_across_call,
    "decref-field": decref_field,
    "paired-fields": paired_fields,
    "gc-new-untracked": gc_new_untracked,
    "traverse-type": traverse_type,
    "dealloc-type": dealloc_type,
    "dealloc-untrack": dealloc_untrack,
    "python-without-gil": python_without_gil,
    # The function steals a reference only if it succeeds.
    "module-add-object": forbidden(
        r"\bPyModule_AddObject\s*\(", "use PyModule_AddObjectRef, which never steals"
    ),
    # The GIL protects the list.  Without a GIL another thread may free its entry at any time,
    # except in a stopped world.
    "thread-states": forbidden(r"\bPyThreadState_Next\s*\(", "the list of thread states is walked"),
}


# ---- convert, check, commit -----------------------------------------------------------
#
# The rule reads all files together.  Between the last check that loop and object are usable
# and the commit that relies on it, no Python code may run: it could close either.

# Checks: calls of these functions.
_CHECKS = re.compile(
    r"\b(?:\w*_check_usable|\w*_check_own_thread|loop_check_closed|gl_loop_is_foreign"
    r"|stream_can_call_go)\s*\("
)
# Commits: a call of a Go function that changes state, a submission, a write to the shared
# block.  (gl_ready_push is not a commit: it checks itself whether the loop was closed.)
_COMMITS = re.compile(
    r"->go->(?!turn\b|reactor_facts\b)(\w+)\s*\(|\b(gl_submit)\s*\("
    r"|\b(shared->\w+(?:\[[^\]]*\])?(?:\.\w+)?)\s*=[^=]"
)
# Functions that run Python, in addition to _RUNS_PYTHON: conversions, buffers, imports, warnings.
_CONVERTS = re.compile(
    r"\b(?:PyNumber_\w+|PyLong_As\w+|PyFloat_AsDouble|PyObject_(?:GetBuffer|AsFileDescriptor"
    r"|IsInstance|IsSubclass|Bytes|ASCII|Format|Dir|GenericSetAttr|GenericGetAttr)"
    r"|PyBuffer_Release|PySequence_(?!Fast_)\w+|PyMapping_\w+|PyArg_\w+|PyImport_\w+"
    r"|PyDict_(?:GetItem\w*|Contains\w*|SetDefault|Update|Merge)|PySet_\w+"
    r"|PyUnicode_From(?:Format|Object)|PyErr_(?:Warn\w*|ResourceWarning|CheckSignals)"
    r"|PyBytes_From(?:Object)|PyByteArray_FromObject|_PyErr_ChainExceptions\w*|PyTuple_SetItem"
    r"|PyGILState_Ensure|Py_EnterRecursiveCall|PyGC_Collect)\s*\("
)
# Allocations do not count, although before 3.12 they may collect garbage, which runs finalisers: a
# finaliser can do no more to a referenced object than a callback of the next turn.
# The mark of functions that a commit may call; the macro expands to nothing.  The rule proves
# that a marked function never runs Python, directly or through another function.
NO_PYTHON = "GL_NO_PYTHON"

# Keywords that look like function calls.
_WORDS = frozenset({"if", "for", "while", "switch", "return", "sizeof", "defined", "_Alignof"})


class Tree:
    """All files together: the graph of calls, and the functions that may run Python."""

    def __init__(self, sources: list[Source]) -> None:
        self.sources = sources
        self.functions = {
            function.name: (source, function) for source in sources for function in source.functions
        }
        self.calls = {
            name: set(re.findall(r"(?<!->)\b(\w+)\s*\(", function.body)) & self.functions.keys()
            for name, (_, function) in self.functions.items()
        }
        # For each function that may run Python, the callee by which it does.
        self.runs = self._closure(self._direct)
        # For each function that commits without a check of its own, the callee or the commit.
        self.commits = self._closure(self._commit, lambda name: not self._checks(name))
        marked = re.compile(rf"\b{NO_PYTHON}\b[^;{{}}()]*?\b(\w+)\s*\(")
        self.marked = {name for source in sources for name in marked.findall(source.code)}

    def _direct(self, name: str) -> str | None:
        source, function = self.functions[name]
        for shape in (_RUNS_PYTHON, _CONVERTS):
            for found in shape.finditer(function.body):
                line = source.line(function.start + found.start())
                if not _gives_up(function.body, found) and not allowed(
                    source.text, line, "check-commit"
                ):
                    return found.group().rstrip("( \t\n")
        return None

    def _commit(self, name: str) -> str | None:
        found = _COMMITS.search(self.functions[name][1].body)
        return next(filter(None, found.groups())) if found else None

    def _checks(self, name: str) -> bool:
        return _CHECKS.search(self.functions[name][1].body) is not None

    def _closure(
        self,
        direct: Callable[[str], str | None],
        passes: Callable[[str], bool] = lambda name: True,
    ) -> dict[str, str]:
        """Returns the functions with a property and their callers, each with the next callee."""
        found = {
            name: how
            for name in self.functions
            if passes(name) and (how := direct(name)) is not None
        }
        grown = True
        while grown:
            grown = False
            for name, callees in self.calls.items():
                through = sorted(callees & found.keys())
                if name not in found and through and passes(name):
                    found[name] = through[0]
                    grown = True
        return found

    def way(self, name: str) -> str:
        """Returns the chain of calls by which a function runs Python."""
        steps = [name]
        while steps[-1] in self.runs and len(steps) < 8:
            steps.append(self.runs[steps[-1]])
        return " > ".join(steps)


def _gives_up(body: str, found: re.Match[str]) -> bool:
    """Returns true if a release is followed by a return that reports a failure.

    The caller then returns as well, without a commit.
    """
    _, end = _block(body, found.start())
    after = re.match(r"\([^;]*;(?:[^;{}]*;)*?\s*return\s+(?:NULL|-1)\s*;", body[found.end() : end])
    return found.group().startswith(("Py_DECREF", "Py_XDECREF")) and after is not None


TreeHits = Iterator[tuple[Source, int, str]]
TreeRules = Mapping[str, Callable[[Tree], TreeHits]]


def check_commit(tree: Tree) -> TreeHits:
    """Python runs between a check and the commit that relies on it.

    An exemption at a call means that the call runs no Python, for example because it releases
    an exact bytes object; in the function's head comment, that its commits rely on no check.
    """
    for name, (source, function) in tree.functions.items():
        if name in tree.marked and name in tree.runs:
            yield source, function.start, f"{name} is marked {NO_PYTHON}: {tree.way(name)}"
        if allowed(source.text, source.line(function.start), "check-commit", reach=8):
            continue
        checks = list(_CHECKS.finditer(function.body))
        if checks:
            hits = _between(tree, function, [check.start() for check in checks])
        elif name in tree.commits and _called_after_check(tree, name):
            hits = _between(tree, function, [0])
        else:
            continue
        for offset, what in hits:
            yield source, function.start + offset, f"{name}: {what}"


def _called_after_check(tree: Tree, name: str) -> bool:
    """Returns true if any function checks, and then calls the function."""
    for _, caller in tree.functions.values():
        check = _CHECKS.search(caller.body)
        if check and re.compile(rf"\b{name}\s*\(").search(caller.body, check.end()):
            return True
    return False


def _between(tree: Tree, function: Function, starts: list[int]) -> Hits:
    """Returns the calls that run Python between the last check and a commit, each once."""
    body = function.body
    commits = [(found.start(), found.group()) for found in _COMMITS.finditer(body)]
    # Calls through the API table are excluded: Go runs no Python.
    calls = list(re.finditer(r"(?<!->)\b(\w+)\b(?:\s*\()?", body))
    for found in calls:
        if found.group().endswith("(") and found[1] in tree.commits and found[1] != function.name:
            commits.append((found.start(), found[1]))
    seen = set()
    for at, commit in sorted(commits):
        start = max((check for check in starts if check <= at), default=None)
        if start is None:
            continue
        for found in calls:
            if not start < found.start() < at or found.start() in seen:
                continue
            how = _runs(tree, tree.functions[function.name][0], function.start, body, found)
            if how is not None and _reaches(body, found.start(), at):
                seen.add(found.start())
                commit = commit.rstrip("( =")
                yield found.start(), f"{how} between the check and the commit, {commit}"


def _runs(tree: Tree, source: Source, start: int, body: str, found: re.Match[str]) -> str | None:
    name = found[1]
    if name in _WORDS or _CHECKS.match(body, found.start()):
        return None
    if name in tree.runs and found.group().endswith("("):
        return f"{tree.way(name)} runs Python"
    line = source.line(start + found.start())
    if allowed(source.text, line, "check-commit"):
        return None
    direct = _RUNS_PYTHON.match(body, found.start()) or _CONVERTS.match(body, found.start())
    return f"{name} runs Python" if direct else None


def _reaches(body: str, call: int, commit: int) -> bool:
    """Returns true if a path leads from a call to the commit."""
    line_start = max(body.rfind(mark, 0, call) for mark in ";{}") + 1
    statement = body[line_start:call]
    end = body.find(";", call)
    if re.search(r"\b(?:return|goto)\b", statement) and not call < commit < end:
        return False
    block_start, block_end = _block(body, call)
    while block_start > 0 and not block_start <= commit < block_end:
        # The commit is outside of the block.  Is the last statement a jump?
        if re.search(r"\b(?:return|goto|break|continue)\b[^;]*;\s*$", body[block_start:block_end]):
            return False
        rest = body[block_end + 1 : commit]
        if re.match(r"\s*else\b", rest) and commit < _else_end(body, block_end + 1):
            return False
        block_start, block_end = _block(body, block_start - 1)
    return True


def _else_end(body: str, offset: int) -> int:
    """Returns the end of the chain of else branches that starts at an offset."""
    while found := re.compile(r"\s*else\b[^;{]*(\{|;)").match(body, offset):
        offset = closing(body, found.end() - 1) + 1 if found[1] == "{" else found.end()
    return offset


TREE_RULES: TreeRules = {"check-commit": check_commit}


# ---- running ----------------------------------------------------------------------


def allowed(text: str, line: int, rule: str, reach: int = 2) -> bool:
    """Returns true if a comment on the line or above it exempts the rule, with a reason."""
    near = "\n".join(text.split("\n")[max(0, line - reach) : line])
    near = near[near.rfind("\n}") + 1 :]  # without the end of the preceding function
    return re.search(rf"lint: allow {rule}: (?!\*/)\S", near) is not None


def judged(hits: Iterable[tuple[str, Source, int, str]]) -> list[Finding]:
    """Returns the findings of hits (rule, source, offset, fault), without exempted ones."""
    findings = set()
    for rule, source, offset, fault in hits:
        line = source.line(offset)
        if not allowed(source.text, line, rule):
            findings.add(Finding(source.path, line, rule, fault))
    return sorted(findings, key=lambda finding: (finding.path, finding.line))


def lint(path: str, text: str, rules: Rules = RULES) -> list[Finding]:
    """Returns the findings in one file's text, in the order of its lines."""
    source = parse(path, text)
    return judged((rule, source, *hit) for rule, look in rules.items() for hit in look(source))


def lint_tree(texts: dict[str, str], rules: TreeRules = TREE_RULES) -> list[Finding]:
    """Returns the findings of the rules over all files."""
    tree = Tree([parse(path, text) for path, text in texts.items()])
    return judged((rule, *hit) for rule, look in rules.items() for hit in look(tree))


def report(findings: list[Finding], files: int) -> int:
    """Prints the findings; returns the exit status."""
    for finding in findings:
        print(finding)
    print(f"{files} files, {len(findings)} findings")
    return 1 if findings or not files else 0


def read(paths: list[str]) -> dict[str, str]:
    """Returns the texts of C files, and of those below folders, by path."""
    files: list[Path] = []
    for path in map(Path, paths):
        files += sorted(path.rglob("*.[ch]")) if path.is_dir() else [path]
    return {str(path): path.read_text() for path in files}


def main(rules: Rules, tree_rules: TreeRules) -> int:
    """Lints the paths of the command line, or those of LINTED; returns 1 if there is a finding.

    Each path is read by itself, because some functions of core and golib have the same name.
    """
    each = [read([path]) for path in sys.argv[1:] or LINTED]
    files = [file for texts in each for file in texts.items()]
    findings = [finding for file in files for finding in lint(*file, rules)]
    findings += [finding for texts in each for finding in lint_tree(texts, tree_rules)]
    return report(findings, len(files))


if __name__ == "__main__":
    sys.exit(main(RULES, TREE_RULES))
