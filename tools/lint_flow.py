"""A lint for exceptions and mutexes during calls of Python.

`python tools/lint_flow.py [FOLDER...]` reads by default the paths listed in LINTED of lint_c.py.
Two rules read all C files below a folder together, as the rule check-commit of lint_c.py does:

    exception-set        Python is called although an exception may be set.  The call may fail
                         without a reason, or replace the exception
    python-under-mutex   Python is called, or the thread blocks, while a mutex is locked.  Python
                         may release the GIL to a thread that waits for the mutex

The lint follows all paths of each function, statement by statement.  The exception is not set, is
set, or is set if a variable has an error value (`r < 0`, `p == NULL`), which a later condition
decides.  Functions that save the exception before they call Python may be called with an exception.
Deallocators and finalisers start with an exception, because they may run at any time.  A release
(Py_DECREF) counts under a mutex only: CPython's own deallocators preserve the exception.

A comment at the call exempts it, with the reason:

    /* lint: allow exception-set: r is 0 here */
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import lint_c
from lint_c import Tree, TreeHits, closing

# ---- statements -------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """A statement of a body: `text` is its expression or condition, which begins at `start`.

    Kinds are "expression", "return", "jump" (goto, break, continue), "label", "block", "if",
    "loop", "do" and "switch".  `parts` are the nested statements.
    """

    kind: str
    text: str
    start: int
    parts: tuple[Statement, ...] = ()


class _Reader:
    """Parses a function's body into statements."""

    def __init__(self, body: str) -> None:
        self.body = body
        self.at = 0

    def all(self) -> tuple[Statement, ...]:
        """Parses the statements up to the end, or up to a closing brace."""
        found: list[Statement] = []
        while True:
            self._skip()
            if self.at >= len(self.body) or self.body[self.at] == "}":
                return tuple(found)
            found.append(self.one())

    def _skip(self) -> None:
        while self.at < len(self.body) and self.body[self.at].isspace():
            self.at += 1

    def _word(self) -> str:
        found = re.compile(r"[A-Za-z_]\w*").match(self.body, self.at)
        return found.group() if found else ""

    def _condition(self) -> tuple[str, int]:
        opened = self.body.index("(", self.at)
        end = closing(self.body, opened)
        self.at = end + 1
        return self.body[opened + 1 : end], opened + 1

    def one(self) -> Statement:
        """Parses the next statement."""
        self._skip()
        start, word = self.at, self._word()
        if self.body[self.at : self.at + 1] == "{":
            self.at += 1
            parts = self.all()
            self.at += 1
            return Statement("block", "", start, parts)
        if word in ("if", "while", "for", "switch"):
            text, where = self._condition()
            parts = (self.one(),)
            if word == "if":
                before = self.at
                self._skip()
                if self._word() == "else":
                    self.at += len("else")
                    parts += (self.one(),)
                else:
                    self.at = before
            kind = {"if": "if", "switch": "switch"}.get(word, "loop")
            return Statement(kind, text, where, parts)
        if word == "do":
            self.at += len(word)
            inside = self.one()
            text, where = self._condition()
            self.at = self.body.index(";", self.at) + 1
            return Statement("do", text, where, (inside,))
        label = re.compile(r"(?:(?:case\b[^:;{}]*|default|[A-Za-z_]\w*)\s*):(?!:)").match(
            self.body, self.at
        )
        if label is not None and "?" not in label.group():
            self.at = label.end()
            return Statement("label", label.group(), start)
        end = self.at
        while end < len(self.body) and self.body[end] not in ";}":
            end = closing(self.body, end) + 1 if self.body[end] in "({[" else end + 1
        self.at = end + 1 if self.body[end : end + 1] == ";" else end
        if word.startswith("Py_RETURN_"):
            return Statement("return", "return", start)
        kinds = {"return": "return", "goto": "jump", "break": "jump", "continue": "jump"}
        return Statement(kinds.get(word, "expression"), self.body[start:end], start)


def statements_of(body: str) -> tuple[Statement, ...]:
    """Returns the statements of a function's body."""
    return _Reader(body).all()


# ---- exceptions ---------------------------------------------------------------------------

# The state of the exception at a place in a function.  None: it is not set.  Otherwise it is set if
# one of these variables has an error value; with an empty set, it is set.
State = frozenset[str] | None
SET: frozenset[str] = frozenset()
UNKNOWN = frozenset({"?"})

# Functions that save or clear the exception.
_TAKES = (
    r"\b(?:gl_take_exception|PyErr_Clear|PyErr_Fetch|PyErr_GetRaisedException|PyErr_WriteUnraisable"
    r"|gl_call_exception_handler|keep_last_failure|gl_transport_fatal_current|PyErr_Print\w*)\b"
)
# Functions that restore a saved exception, which is not NULL.
_RESTORES = r"\b(?:gl_restore_exception|PyErr_Restore|PyErr_SetRaisedException)\b"
_RAISES = r"\b(?:PyErr_(?:Set\w+|Format\w*|NoMemory|BadArgument|BadInternalCall)|gl_set_oserror)\b"
# Python's functions that must not be called with an exception set.
_CALLS_PYTHON = (
    r"\b(?:PyObject_(?:Call(?!FinalizerFromDealloc)\w*|Vectorcall\w*|GetAttr\w*|SetAttr\w*"
    r"|DelAttr\w*|IsTrue|Not|RichCompare\w*|Repr|Str|Hash|GetItem|SetItem|DelItem|GetIter|Size"
    r"|Length|GetBuffer|AsFileDescriptor|IsInstance|IsSubclass|Bytes|ASCII|Format|Dir)"
    r"|PyIter_(?:Next|Send)|PyNumber_\w+|PySequence_(?!Fast_)\w+|PyMapping_\w+|PyArg_\w+"
    r"|PyImport_\w+|PyErr_(?:Warn\w*|ResourceWarning|CheckSignals)|PyUnicode_From(?:Format|Object)"
    r"|PyEval_Eval\w*|PyDict_(?:SetItem\w*|DelItem\w*|Update|Merge))\b"
)
_MAKES = r"Py[A-Z]\w+_(?:New|From|Pack|As)\w*$"
_CALL = re.compile(r"(?<!\w)((?:\w+(?:->|\.))*)([A-Za-z_]\w*)\s*\(")


def _decides(condition: str, name: str, number: bool) -> tuple[bool, bool] | None:
    """Whether the variable may have an error value if the condition is true, and if it is false."""
    text = condition.strip()
    word = rf"(?<![\w.>]){re.escape(name)}\b"
    if re.fullmatch(rf"!\s*{word}", text):
        return not number, number
    if re.fullmatch(word, text):
        return number, not number
    if re.search(rf"{word}\)?\s*(?:< 0|<= 0|== NULL|== -1|!= 0)", text):
        return True, False
    if re.search(
        rf"{word}\)?\s*(?:== 0|>= 0|> 0|== 1|!= NULL|!= -1|== PYGEN_(?:NEXT|RETURN))", text
    ):
        return False, True
    if re.search(rf"{word}\)?\s*!= PYGEN_(?:NEXT|RETURN)", text):
        return True, False
    return None


def split(text: str, start: int, mark: str) -> list[tuple[str, int]]:
    """Returns the operands of && or || outside of brackets, with their offsets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "({[") - (letter in ")}]")
        if depth == 0 and text.startswith(mark, at):
            parts.append((text[begin:at], start + begin))
            begin = at + len(mark)
    parts.append((text[begin:], start + begin))
    return parts


def _join(one: State, other: State) -> State:
    if one is None or other is None:
        either = one if other is None else other
        return either if either is None or either else UNKNOWN
    return one | other if one and other else one | other | UNKNOWN


class Flow:
    """Functions that may fail, and functions that must not be called with an exception set."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.statements = {
            name: statements_of(function.body) for name, (_, function) in tree.functions.items()
        }
        self.values = {name: self._value(name) for name in tree.functions}
        self.fails = self._fails()
        self._unsafe: dict[str, str | None] = {}
        # A function that clears every exception does not fail.
        for name in sorted(self.fails):
            if re.search(_TAKES, tree.functions[name][1].body):
                walk = Walk(self, name)
                walk.body(None)
                if not walk.fails:
                    self.fails.discard(name)
        self._unsafe.clear()
        ends: set[str] = set()
        for source in tree.sources:
            ends.update(
                re.findall(
                    r"\{\s*Py_tp_(?:dealloc|finalize|clear|free)\s*,\s*(?:\([^()]*\)\s*)?&?(\w+)",
                    source.code,
                )
            )
        self.ends = ends & tree.functions.keys()

    def _value(self, name: str) -> str:
        """Returns the type of a result: "int", "object", or "" if it can't report an exception."""
        source, function = self.tree.functions[name]
        head = source.code[: function.start].rstrip()[:-1]
        head = head[max(head.rfind(mark) for mark in ";}") + 1 :]
        before = head[: re.search(rf"\b{name}\s*\(", head).start()] if head else ""  # type: ignore[union-attr]
        if re.search(r"\bint\s*$", before.rstrip()) or before.rstrip().endswith("Py_ssize_t"):
            return "int"
        return "object" if before.rstrip().endswith("*") else ""

    def _fails(self) -> set[str]:
        direct = re.compile(f"{_RAISES}|{_CALLS_PYTHON}|\\bPy[A-Z]\\w+_New\\w*\\b|\\bPyLong_As\\w+")
        found = {
            name
            for name, (_, function) in self.tree.functions.items()
            if self.values[name] and direct.search(function.body)
        }
        while True:
            more = {
                name
                for name, callees in self.tree.calls.items()
                if name not in found and self.values[name] and callees & found
            }
            if not more:
                return found
            found |= more

    def unsafe(self, name: str) -> str | None:
        """Returns the fault in a call of a function with an exception set, or None."""
        if name not in self._unsafe:
            self._unsafe[name] = None  # for recursive calls
            walk = Walk(self, name)
            walk.body(SET)
            self._unsafe[name] = walk.found[0][1] if walk.found else None
        return self._unsafe[name]


class Walk:
    """The paths of one function."""

    def __init__(self, flow: Flow, name: str) -> None:
        self.flow = flow
        self.name = name
        self.source, self.function = flow.tree.functions[name]
        self.found: list[tuple[int, str]] = []
        # Numeric variables, with error values below 0; the error value of others is NULL or false.
        declared = re.findall(
            r"\b(?:int|long|s?size_t|Py_ssize_t|int32_t|PySendResult)\s+([^;(){}?]+)",
            self.function.body,
        )
        self.numbers = {
            name
            for names in declared
            for name in re.findall(r"(?:^|,)\s*(\w+)\s*(?=[=,]|$)", names)
        }
        self._labels: dict[str, State] = {}
        self._jumps: list[State] = []
        # Whether a path returns with an exception.
        self.fails = False

    def body(self, state: State) -> None:
        """Follows the function from a state at its start."""
        self._all(self.flow.statements[self.name], state)

    def _all(self, statements: tuple[Statement, ...], state: State) -> tuple[State, bool]:
        """Returns the state after the statements, and whether a path reaches their end."""
        alive = True
        for statement in statements:
            if statement.kind == "label":
                name = statement.text.rstrip(": \t\n")
                if name.startswith(("case ", "case\t", "default")):
                    came = self._entry
                elif name in self._labels:
                    came = self._labels[name]
                else:
                    continue
                state = _join(state, came) if alive else came
                alive = True
            elif alive:
                state, alive = self._one(statement, state)
        return state, alive

    _entry: State = None

    def _one(self, statement: Statement, state: State) -> tuple[State, bool]:
        kind, parts = statement.kind, statement.parts
        if kind == "block":
            return self._all(parts, state)
        if kind == "if":
            true, false = self._condition(statement.text, statement.start, state)
            one, lives = self._one(parts[0], true)
            other, lives_too = self._one(parts[1], false) if len(parts) > 1 else (false, True)
            if lives and lives_too:
                return _join(one, other), True
            if lives_too and other is not None:
                # A variable that is tested on a path that leaves is known after the statement.
                known = {
                    n
                    for n in other
                    if re.search(rf"\b{re.escape(n)}\)? (?:< 0|== NULL)", statement.text)
                }
                other = (other - known or None) if known else other
            return (one, True) if lives else (other, lives_too)
        if kind in ("loop", "do"):
            return self._loop(statement, state)
        if kind == "switch":
            state = self._expression(statement.text, statement.start, state)
            before, self._entry = self._entry, state
            jumps, self._jumps = self._jumps, []
            after, lives = self._all(parts[0].parts or parts, state)
            for came in [*self._jumps, state]:
                after, lives = (_join(after, came), True) if lives else (came, True)
            self._entry, self._jumps = before, jumps
            return after, lives
        if kind == "return":
            value = statement.text[len("return") :]
            left = self._expression(value, statement.start + 6, state)
            names = {call[2] for call in _CALL.finditer(value)}
            self.fails |= left is not None or any(
                name in self.flow.fails or name.startswith("Py") for name in names
            )
            return state, False
        if kind == "jump":
            words = statement.text.split()
            if words[0] == "goto":
                came = self._labels.get(words[1], state)
                self._labels[words[1]] = _join(came, state)
            else:
                self._jumps.append(state)
            return state, False
        return self._expression(statement.text, statement.start, state), True

    def _loop(self, statement: Statement, state: State) -> tuple[State, bool]:
        jumps, self._jumps = self._jumps, []
        text, start, inside = statement.text, statement.start, statement.parts[0]
        after: State = state
        pieces = text.split(";") if statement.kind == "loop" else [text]
        lives = False
        for _ in range(2):
            if len(pieces) == 3:
                true, false = self._condition(pieces[1], start + len(pieces[0]) + 1, state)
            elif statement.kind == "loop":
                true, false = self._condition(text, start, state)
            else:
                true, false = state, None
            end, reached = self._one(inside, true)
            if reached and statement.kind == "do":
                end, false = self._condition(text, start, end)
            if reached or statement.kind == "loop":
                after = _join(after, false) if lives else false
                lives = True
            if reached:
                state = _join(state, end)
        for came in self._jumps:
            after, lives = (_join(after, came), True) if lives else (came, True)
        self._jumps = jumps
        return after, lives

    def _condition(self, text: str, start: int, state: State) -> tuple[State, State]:
        """Returns the states after a true and after a false condition."""
        for mark in ("||", "&&"):
            operands = split(text, start, mark)
            if len(operands) > 1:
                decided: list[State] = []
                for operand, at in operands:
                    true, false = self._condition(operand, at, state)
                    state, one = (false, true) if mark == "||" else (true, false)
                    decided.append(one)
                whole = functools.reduce(_join, decided)
                return (whole, state) if mark == "||" else (state, whole)
        bare = text.strip()
        if bare.startswith("(") and closing(bare, 0) == len(bare) - 1:
            return self._condition(bare[1:-1], start + text.index("(") + 1, state)
        if "PyErr_Occurred()" in bare or "gl_is_exit_exception()" in bare:
            return (None, state) if bare.startswith("!") else (state or SET, None)
        fails: list[str] = []
        state = self._expression(text, start, state, fails)
        for name in state or ():
            sides = _decides(bare, name, name in self.numbers)
            if sides is not None:
                none = (state or SET) - {name} or None
                return (state, none) if sides[0] else (none, state)
        if fails and state is None:
            # The condition is the call itself.
            if re.search(r"(?:< 0|== NULL|== -1|!= 0)\s*$", bare) or (
                bare.startswith("!") and self.flow.values.get(fails[-1], "object") == "object"
            ):
                return SET, None
            if re.search(r"(?:== 0|>= 0|!= NULL|> 0)\s*$", bare):
                return None, SET
        return state, state

    def _expression(
        self, text: str, start: int, state: State, tested: list[str] | None = None
    ) -> State:
        """Returns the state after an expression; appends calls that may fail to `tested`."""
        short = split(text, start, "&&")
        if tested is None and len(short) > 1 and "=" not in short[0][0].replace("==", ""):
            true, false = self._condition(text, start, state)
            return _join(true, false)
        chosen = re.match(r"([^?]*)\?(.*)$", text, re.DOTALL)
        if chosen and ":" in chosen[2] and tested is None:
            return self._chosen(chosen, text, start, state)
        failed: str | None = None
        for call in _CALL.finditer(text):
            name, through = call[2], call[1]
            if name in lint_c._WORDS:
                continue
            if re.match(_TAKES, name):
                state = None
                failed = name if name in self.flow.fails else failed
            elif re.match(_RESTORES, name):
                state = UNKNOWN
            elif re.match(_RAISES, name):
                state = SET
            elif not through and (how := self._wrong(name)) is not None:
                if state is not None:
                    self.found.append((start + call.start(), how))
                if name in self.flow.fails or name not in self.flow.values:
                    failed = name
            elif (not through and name in self.flow.fails) or re.match(_MAKES, name):
                failed = name
        if failed is not None:
            if tested is not None:
                tested.append(failed)
            given = re.match(r"(?:[\w\s*]*[\s*])?([\w.>-]+)\s*=[^=]", text.strip().lstrip("!( "))
            if given is not None:
                state = (state or SET) | {given[1]}
        told = re.match(r"\s*bool\s+(\w+)\s*=[^=]", text)
        if (
            told is not None
            and state
            and any(re.search(rf"\b{re.escape(name)}\b", text[told.end() - 1 :]) for name in state)
        ):
            state = state | {told[1]}
        failure = re.search(r"([\w.>-]+)\s*=\s*(?:-1|NULL)\s*$", text)
        if failure is not None and state is not None and (not state or state & UNKNOWN):
            state = (state - UNKNOWN) | {failure[1]}
        return state

    def _chosen(self, chosen: re.Match[str], text: str, start: int, state: State) -> State:
        condition = chosen[1]
        given = re.match(r"\s*(?:[\w\s*]*[\s*])?([\w.>-]+)\s*=(?!=)", condition)
        offset = given.end() if given else 0
        true, false = self._condition(condition[offset:], start + offset, state)
        depth, at = 0, chosen.start(2)
        for at in range(chosen.start(2), len(text)):
            depth += (text[at] in "({[?") - (text[at] in ")}]")
            if text[at] == ":":
                if depth == 0:
                    break
                depth -= 1
        before: list[str] = []
        one = self._expression(text[chosen.start(2) : at], start + chosen.start(2), true, before)
        other = self._expression(text[at + 1 :], start + at + 1, false, before)
        state = _join(one, other)
        if given is not None and (before or state is not None):
            state = frozenset({given[1]})
        return state

    def _wrong(self, name: str) -> str | None:
        """Returns why a function must not be called with an exception set, or None."""
        if name == "gl_take_bool":  # accepts NULL as a failure
            return None
        if re.fullmatch(_CALLS_PYTHON, name):
            return f"{name} runs Python"
        if name in self.flow.tree.functions and name != self.name:
            how = self.flow.unsafe(name)
            return None if how is None else f"{name} > {how}"
        return None


# Reviewed functions with paths that the lint can't distinguish, and why they are correct.
REVIEWED = {
    "openssl_find_objects": "`valid` is true only if the preceding object exists",
    "schedule_first_callback": "a wakeup and its context are both NULL or both set",
    "stream_deliver_bytes": "stream_keep_undelivered() saves the exception of a failed delivery",
    "stream_get_buffer": "`n` is the buffer's length; a buffer without room is released",
    "stream_keep_undelivered": "`bytes` is NULL only if nothing else is called",
    "gl_transport_dealloc": "a lease without an owner closes the descriptor, and calls no method",
    "wait_exact": "a wakeup and its context are both NULL or both set",
    "wait_general": "a wakeup and its context are both NULL or both set",
    "watch_set_slot": "`placed` is true only if a watch exists and no exception is set",
}


def exception_set(tree: Tree) -> TreeHits:
    """Python is called although an exception may be set."""
    flow = Flow(tree)
    for name, (source, function) in tree.functions.items():
        walk = Walk(flow, name)
        walk.body(SET if name in flow.ends else None)
        if name in REVIEWED:
            if not walk.found:
                yield source, function.start, f"{name} has no finding: remove it from REVIEWED"
            continue
        for offset, how in dict(walk.found).items():
            yield source, function.start + offset, f"{name}: {how}, and an exception may be set"


# ---- mutexes --------------------------------------------------------------------------------

_LOCK = re.compile(r"\b(?:pthread_mutex_lock|PyMutex_Lock|GL_LOCK)\s*\(([^()]*)\)")
_WAITS = re.compile(
    r"\b(write|writev|read|readv|recv|send|accept4?|connect|poll|select|nanosleep|usleep|sleep"
    r"|fsync|flock|dlopen|getaddrinfo|pthread_join|printf|fprintf|fwrite|fflush)\s*\("
)


def _held(body: str, found: re.Match[str]) -> Iterator[tuple[int, int]]:
    """Returns the ranges of a body during which a mutex is locked."""
    start = found.end()
    unlock = re.compile(
        rf"\b(?:pthread_mutex_unlock|PyMutex_Unlock|GL_UNLOCK)\s*\(\s*{re.escape(found[1])}\s*\)"
    )
    while True:
        end = unlock.search(body, start)
        if end is None:
            yield start, len(body)
            return
        yield start, end.start()
        block, leaves = lint_c._block(body, end.start())
        if block <= found.start() or not re.search(
            r"\b(?:return|goto)\b[^;]*;\s*$", body[block:leaves]
        ):
            return
        start = leaves


def python_under_mutex(tree: Tree) -> TreeHits:
    """Python is called, or the thread blocks, while a mutex is locked."""

    def waits(name: str) -> str | None:
        source, function = tree.functions[name]
        for found in _WAITS.finditer(function.body):
            line = source.line(function.start + found.start())
            before = function.body[: found.start()]
            if not before.endswith((">", ".")) and not lint_c.allowed(
                source.text, line, "python-under-mutex"
            ):
                return found[1]
        return None

    word = re.compile(r"(?<![>.])\b(\w+)\b(?:\s*\()?")
    waiting = tree._closure(waits)
    # Functions that are exempted by their head comment.
    excused = {
        name
        for name, (source, function) in tree.functions.items()
        if lint_c.allowed(source.text, source.line(function.start), "python-under-mutex", reach=8)
    }
    for name, (source, function) in tree.functions.items():
        for lock in _LOCK.finditer(function.body):
            for start, end in _held(function.body, lock):
                for call in word.finditer(function.body, start, end):
                    at, called = call.start(), call[1]
                    if called in excused:
                        continue
                    how = lint_c._runs(tree, source, function.start, function.body, call)
                    if how is None and called in waiting and call.group().endswith("("):
                        how = f"{called} > {waiting[called]} may block"
                    if how is None and _WAITS.match(function.body, at):
                        how = f"{called} may block"
                    if how is not None:
                        yield source, function.start + at, f"{name}: {how}, and a mutex is locked"


# ---- running ---------------------------------------------------------------------------------

RULES = {"exception-set": exception_set, "python-under-mutex": python_under_mutex}

if __name__ == "__main__":
    sys.exit(lint_c.main({}, RULES))
