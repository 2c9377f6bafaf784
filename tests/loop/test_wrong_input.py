"""Wrong calls get asyncio's answer: the same exception, words, warnings and reports.

wrong_calls.py makes the calls, and each is made here on both loops of the running version. Where
goloop's answer differs it is better than asyncio's, and stands in EXPECTED with the reason;
docs/compatibility.md, "Wrong input", has the same list.  A row that no longer holds fails.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import re
import sys

import pytest
from asyncio_messages import LOOKS_AT_LINES
from conftest import LOOP_NAMES, factory_of
from partial_run import FREE_THREADED, PART
from wrong_calls import CALLS, Answer, Call, answer, collect

needs_goloop = pytest.mark.skipif("goloop" not in LOOP_NAMES, reason="compares goloop to asyncio")

# How long a call may take that one of the loops answers at once, in seconds.
PATIENCE = 10.0


@dataclasses.dataclass
class Difference:
    """Calls that are answered better, and why that is better.  "..." stands for anything."""

    calls: str
    reason: str
    since: tuple[int, ...] = (3, 11)
    before: tuple[int, ...] = (3, 99)

    def is_about(self, call: Call) -> bool:
        pattern = re.escape(self.calls).replace(re.escape("..."), ".*")
        return re.fullmatch(pattern, str(call)) is not None

    def is_current(self) -> bool:
        return self.since <= sys.version_info < self.before


NAN = "NaN is no time: asyncio's timers lose their order by it"
NO_TIME = "asyncio takes it, and the loop fails when it comes to compare it with other timers"
NO_CONTEXT = "says that a Context was expected, where asyncio misses an attribute of the object"
NAMES_CLASS = "the words name the class, asyncio's the function alone"
BOOL = "get_debug() gives a bool, as documented; asyncio's gives what set_debug() got"
ADDRESS = "the datagram is dropped and that reported; asyncio's endpoint ends"
CLOSED = "a closed loop refuses; asyncio's sends if it can do so at once"

EXPECTED = [
    Difference("...loop.call_later(nan, function)", NAN),
    Difference("...loop.call_at(nan, function)", NAN),
    Difference("await loop.start_tls(..., ssl_handshake_timeout=nan)", NAN, before=(3, 14)),
    Difference("await asyncio.sleep(nan)", NAN, before=(3, 13)),
    Difference("await asyncio.wait_for(coroutine_function(), nan)", NAN),
    *[Difference(f"...loop.call_at({what}, function)", NO_TIME)
      for what in ("'x'", "object()", "[]", "b'1'", "1j", "2**2000")],
    Difference("...loop.call_later(1j, function)", NO_TIME),
    Difference("loop.create_task(coroutine, context=...)", NO_CONTEXT, before=(3, 15)),
    Difference("type(task)(coroutine, loop=loop, context=1)", NO_CONTEXT, before=(3, 15)),
    *[Difference(call + form, NAMES_CLASS, since=(3, 12))
      for call in ("future.set_result", "future.set_exception",
                   "future.remove_done_callback", "task.remove_done_callback")
      for form in ("()", "(no_such=1)", "(..., no_such=1)", "(..., self=1)", "(..., None, None)")],
    Difference("(loop.set_debug(...), loop.get_debug())", BOOL),
    Difference("loop.set_debug(Angry())", "set_debug() raises; asyncio's ends the loop later"),
    Difference("handle.cancel(), handle._run()",
               "a cancelled handle that is run does nothing; asyncio's reports a TypeError"),
    Difference("await loop.start_tls(closing, ...)",
               "a closed transport is not read; asyncio's reports EBADF"),
    Difference("...sendfile(..., file, count=2**70)", "what is more than the file is the file",
               before=(3, 13)),
    Difference("closed: await loop.sock_sendall(near, b'x')", CLOSED),
    *[Difference(f"closing.writelines({what})", "3.14's asyncio does not look either",
                 since=(3, 12), before=(3, 13) if LOOKS_AT_LINES else (3, 14))
      for what in ("1", "[1]")],
    Difference("transport.writelines([None])", "what is no data is refused, though it is empty",
               since=(3, 14)),
    *[Difference(f"await loop.{call}", "3.11's asyncio begins a second transport on the descriptor",
                 before=(3, 12))
      for call in ("create_connection(Protocol, sock=transport_socket)",
                   "connect_accepted_socket(Protocol, transport_socket)")],
    *[Difference(f"await loop.create_datagram_endpoint({what})", "3.12 has DatagramTransports too",
                 before=(3, 12))
      for what in ("DatagramProtocol, ('127.0.0.1', 0), flags='x'", "Partial, ('127.0.0.1', 0)")],
    *[Difference(f"datagrams.sendto({what})", ADDRESS)
      for what in ("b'x'", "data=b'x'", "b'x', None", "b'x', 1", "b'x', 'x'", "b'x', b'x'",
                   "b'x', ()", "b'x', ('127.0.0.1',)", "b'x', ('127.0.0.1', 'x')",
                   "b'x', ('127.0.0.1', -1)", "b'x', ('127.0.0.1', 70000)",
                   "b'x', ('127.0.0.1', None)", "b'x', (1, 2)", "b'x', (None, 1)",
                   "b'x', ('127.0.0.1', 1, 2, 3, 4)", "b'x', ['127.0.0.1', 1]", "b'x', object()")],
    *[Difference(f"datagrams.sendto({what})", ADDRESS, since=(3, 13))
      for what in ("b''", "b'', None")],
]  # fmt: skip


def expected_of(call: Call) -> Difference | None:
    return next((row for row in EXPECTED if row.is_current() and row.is_about(call)), None)


def both(call: Call, patience: float = 0.3) -> tuple[Answer, Answer]:
    theirs = answer(call, asyncio.SelectorEventLoop, patience)
    return theirs, answer(call, factory_of("goloop"), patience)


def function_of(call: Call) -> str:
    return str(call).replace("await ", "").partition("(")[0]


GROUPS: dict[str, list[Call]] = {}
for _call in CALLS:
    GROUPS.setdefault(function_of(_call), []).append(_call)
# Without a GIL the collector looks at all there is, frozen or not, and each answer ends with it.
EACH = 6 if PART and FREE_THREADED else 1


@needs_goloop
@pytest.mark.usefixtures("warmed")
@pytest.mark.parametrize("function", GROUPS)
def test_wrong_calls_have_asyncios_error_or_a_clearer_one(function: str) -> None:
    collect()
    gc.freeze()  # each answer ends with a collection, which has no business here
    wrong: list[str] = []
    for call in GROUPS[function][::EACH]:
        difference = expected_of(call)
        theirs, ours = both(call)
        if difference is None and theirs != ours and "waits" in (theirs.outcome, ours.outcome):
            theirs, ours = both(call, PATIENCE)
        if difference is None and theirs != ours:
            wrong.append(f"{call}\nasyncio: {theirs}\ngoloop: {ours}")
        if difference is not None and theirs == ours:
            wrong.append(f"{call}\nno longer differs: {difference.reason}")
    collect()
    assert not wrong, "\n\n".join(wrong)


@needs_goloop
def test_each_difference_is_about_a_call() -> None:
    unused = [row for row in EXPECTED if not any(map(row.is_about, CALLS))]
    assert not unused


def test_the_calls_are_many_and_of_everything() -> None:
    assert len(CALLS) > 2000
    assert {call.state for call in CALLS} == {"running", "stopped", "closed", "debug"}
    called = " ".join(map(str, CALLS))
    public = [name for name in dir(asyncio.AbstractEventLoop) if not name.startswith("_")]
    assert not [name for name in public if f"loop.{name}(" not in called]


def test_comparison_covers_errors_and_side_effects() -> None:
    """Calls with known answers show that the comparison works."""
    soon, recv, left = (
        answer(Call(source), asyncio.SelectorEventLoop)
        for source in (
            "loop.call_soon(1)",
            "await loop.sock_recv(near, 1)",
            "socket.socket().detach()",
        )
    )
    said = "reports Exception in callback 1(): TypeError: 'int' object is not callable"
    assert (soon.outcome, soon.said, soon.leaked) == ("gives Handle", [said], [])
    assert recv.outcome == "waits"
    assert left.leaked == ["socket:[N]"]
    os.close(int(left.outcome.removeprefix("gives ")))
