"""Arguments by position and by name: accepted ones, and the errors for wrong ones.

The native methods of the loop stand for Python methods of asyncio's, so a wrong call is told in
the words that the running CPython has for those.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import socket
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from arguments import NAMED, VALID
from conftest import LOOP_NAMES

needs_goloop = pytest.mark.skipif("goloop" not in LOOP_NAMES, reason="compares goloop to asyncio")

Call = tuple[tuple[Any, ...], dict[str, Any]]


def words(loop: asyncio.AbstractEventLoop, name: str, call: Call) -> str:
    with pytest.raises(TypeError) as caught:
        getattr(loop, name)(*call[0], **call[1])
    assert type(caught.value) is TypeError
    return str(caught.value)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Any, Any]]:
    import goloop

    ours, theirs = goloop.new_event_loop(), asyncio.SelectorEventLoop()
    yield ours, theirs
    ours.close()
    theirs.close()


@needs_goloop
@pytest.mark.skipif(sys.version_info < (3, 13), reason="CPython suggests names since 3.13")
def test_a_name_is_suggested(both: tuple[Any, Any]) -> None:
    ours, _ = both
    assert "Did you mean 'context'?" in words(ours, "call_soon", ((print,), {"contxt": None}))


class Text(str):
    """A name of a subclass of str, whose comparisons may give any result."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def test_a_name_may_be_a_string_of_a_subclass(loop: asyncio.AbstractEventLoop) -> None:
    class Name(str):
        __slots__ = ()

    any_loop: Any = loop
    seen: list[int] = []

    def note() -> None:
        seen.append(1)
        loop.stop()

    any_loop.call_soon(**{Name("callback"): note})
    loop.run_forever()
    assert seen == [1]


@needs_goloop
def test_a_name_that_is_equal_to_all(both: tuple[Any, Any]) -> None:
    ours, _ = both
    with pytest.raises(TypeError):
        ours.call_soon(print, **{Text("none of these"): None})
    with pytest.raises(TypeError):
        ours.remove_reader(**{Text("none of these"): None})


def test_names_and_positions_mix(loop: asyncio.AbstractEventLoop) -> None:
    any_loop: Any = loop
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    context = contextvars.copy_context()
    context.run(variable.set, 5)
    seen: list[Any] = []

    def note(*args: int) -> None:
        seen.append((*args, variable.get()))

    any_loop.call_soon(note, 1, 2, 3, context=context)
    any_loop.call_soon(context=context, callback=note)
    any_loop.call_soon(callback=note)
    any_loop.call_soon(note, context=None)
    any_loop.call_later(0, note, 4, context=context)
    any_loop.call_later(0.001, callback=note, context=context)
    any_loop.call_at(callback=note, when=0)
    any_loop.call_later(0.005, loop.stop)
    loop.run_forever()
    assert sorted(seen) == sorted([(1, 2, 3, 5), (5,), (0,), (0,), (4, 5), (5,), (0,)])


def test_sock_methods_by_name(loop: asyncio.AbstractEventLoop) -> None:
    near, far = socket.socketpair()
    near.setblocking(False)
    far.setblocking(False)
    buffer = bytearray(10)
    any_loop: Any = loop

    async def main() -> None:
        await any_loop.sock_sendall(data=b"abc", sock=near)
        assert await any_loop.sock_recv(far, n=2) == b"ab"
        assert await any_loop.sock_recv_into(buf=buffer, sock=far) == 1

    with near, far:
        loop.run_until_complete(main())


@pytest.mark.parametrize(
    "name", ["create_connection", "create_datagram_endpoint", "create_server",
             "create_unix_connection", "create_unix_server"]
)  # fmt: skip
def test_a_wrong_call_of_a_coroutine_method_raises_at_once(
    loop: asyncio.AbstractEventLoop, name: str
) -> None:
    method: Any = getattr(loop, name)
    # 3.11 has no other mark of a function that is not `async def`.
    newer = sys.version_info >= (3, 12)
    assert (inspect if newer else asyncio).iscoroutinefunction(method)
    with pytest.raises(TypeError, match=rf"{name}\(\) (got an unexpected|missing)"):
        method()
    with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected.*'nonsense'"):
        method(asyncio.Protocol, nonsense=1)


@needs_goloop
def test_a_wrong_call_keeps_nothing_alive() -> None:
    import goloop

    class Thing:
        pass

    loop: Any = goloop.new_event_loop()
    thing = Thing()
    for function in [name for name in NAMED if name.startswith("loop.")]:
        source = f"{function}({', '.join(VALID[function])}, unknown=thing)"
        with pytest.raises(TypeError):
            eval(source, {"loop": loop, "thing": thing, "function": print, "fd": 0, "near": None})
    gone = weakref.ref(thing)
    del thing
    gc.collect()
    assert gone() is None
    loop.close()
