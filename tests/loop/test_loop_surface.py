"""Every method of asyncio's loop is there with asyncio's signature, and can be overridden."""

from __future__ import annotations

import asyncio
import inspect
import sys
from typing import Any

import pytest
from conftest import LOOP_NAMES, LoopFactory
from protocols import close_all, one_turn

Loop = asyncio.AbstractEventLoop

METHODS = sorted(
    name
    for name, value in vars(asyncio.AbstractEventLoop).items()
    if callable(value) and not name.startswith("_")
)

needs_goloop = pytest.mark.skipif("goloop" not in LOOP_NAMES, reason="compares goloop to asyncio")


def parameters(method: Any) -> list[tuple[str, Any, Any]] | None:
    """Names, kinds and defaults without self; None where a method written in C has none."""
    try:
        signature = inspect.signature(method)
    except ValueError:
        return None
    return [(p.name, p.kind, p.default) for p in list(signature.parameters.values())[1:]]


@needs_goloop
@pytest.mark.parametrize("name", METHODS)
def test_methods_have_asyncios_signatures(name: str) -> None:
    import goloop

    ours = parameters(getattr(goloop.Loop, name))
    theirs = parameters(getattr(asyncio.SelectorEventLoop, name))
    if name in ("create_server", "create_unix_server"):
        assert ours
        assert ours.pop() == ("max_connections", inspect.Parameter.KEYWORD_ONLY, None)
    if name == "create_task" and (3, 13) <= sys.version_info < (3, 14):
        # Late releases of 3.13 pass other keywords on; goloop's text is one for all of them.
        assert ours
        assert ours == theirs[: len(ours)]  # type: ignore[index]
        assert len(ours) == 3
    else:
        # Python 3.11 tells no signature of a C method without arguments.
        assert (ours or []) == theirs


@needs_goloop
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_docstring(name: str) -> None:
    import goloop

    if inspect.getdoc(getattr(asyncio.SelectorEventLoop, name)):
        assert inspect.getdoc(getattr(goloop.Loop, name))


@pytest.fixture
def base(loop_factory: LoopFactory) -> type[Loop]:
    loop = loop_factory()
    loop.close()
    return type(loop)


def test_an_overridden_time_is_the_time_of_the_loop(base: Any) -> None:
    class Shifted(base):  # type: ignore[misc]
        def time(self) -> float:
            return float(super().time() + 1000.0)

    loop = Shifted()
    start = loop.time()
    loop.run_until_complete(asyncio.sleep(0.002))
    assert 0.002 <= loop.time() - start < 100
    loop.close()


def test_an_overridden_create_task_makes_every_task(base: Any) -> None:
    names: list[str] = []

    class Naming(base):  # type: ignore[misc]
        def create_task(self, coroutine: Any, **kwargs: Any) -> asyncio.Task[Any]:
            task: asyncio.Task[Any] = super().create_task(coroutine, **kwargs)
            names.append(task.get_name())
            return task

    loop = Naming()

    async def main() -> None:
        await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))

    loop.run_until_complete(main())
    loop.close()
    assert len(names) == 3


def test_an_overridden_exception_handler_gets_the_contexts(base: Any) -> None:
    contexts: list[dict[str, Any]] = []

    class Noting(base):  # type: ignore[misc]
        def call_exception_handler(self, context: dict[str, Any]) -> None:
            contexts.append(context)

    loop = Noting()
    loop.call_soon(divmod, 1, 0)
    one_turn(loop)
    loop.close()
    assert isinstance(contexts[0]["exception"], ZeroDivisionError)


def test_a_subclass_may_have_an_init_and_attributes(base: Any) -> None:
    class Own(base):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    loop = Own("mine")
    loop.anything = 5
    assert (loop.name, loop.anything) == ("mine", 5)
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_methods_replaced_on_the_instance_are_called(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    original = loop.getaddrinfo

    async def getaddrinfo(*args: Any, **kwargs: Any) -> Any:
        calls.append("getaddrinfo")
        return await original(*args, **kwargs)

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)

    async def main() -> None:
        server = await loop.create_server(asyncio.Protocol, "localhost", 0)
        await close_all(server)

    loop.run_until_complete(main())
    assert calls


def test_loop_has_no_selector_to_wrap(loop: Loop, loop_name: str) -> None:
    """looptime does so, and is told by an AttributeError: docs/tools.md."""
    assert hasattr(loop, "_selector") is (loop_name == "asyncio")
