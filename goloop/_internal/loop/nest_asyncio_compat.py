"""nest_asyncio is refused: what its apply() meets on a goloop loop.

apply() makes asyncio's loops run within themselves: it replaces the methods that run a loop by
Python ones, which take handles from asyncio's own queues and ask its selector.  goloop's queues
are native, and it has no selector: a loop that was patched would run nothing, for ever.

apply() changes asyncio first, for the whole process: tasks and futures in Python, another
`asyncio.run`, another `get_event_loop`, also of the policy.  Then it asks the loop whether it is
patched already.  That question is answered by an error, after those changes are taken back,
unless a loop of asyncio's has been patched before and relies on them.
"""

from __future__ import annotations

import _asyncio
import asyncio
import asyncio.runners
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import Any, NoReturn

    Names = dict[str, Any]

# The function of nest_asyncio, and of its successors, that asks.
_ASKING = "_patch_loop"
# Functions of asyncio.events that are replaced.
_EVENTS = ("get_event_loop", "_get_event_loop")


def asked(loop: object, owner: type, asking: FrameType) -> NoReturn:
    """An error for code that would patch; for all other code `_nest_patched` is missing."""
    if loop is None or asking.f_code.co_name != _ASKING:
        raise AttributeError(f"{owner.__name__!r} object has no attribute '_nest_patched'")
    _take_back(asking.f_globals)
    raise ValueError(
        f"Can't patch loop of type {owner}: a goloop loop cannot run within itself, so "
        f"nest_asyncio.apply() is refused. Use `await` (notebooks allow it at the top of a "
        f"cell), or run the coroutine in a thread of its own: "
        f"threading.Thread(target=goloop.run, args=(main(),))"
    )


def _take_back(theirs: Names) -> None:
    """Undoes what the module with these names did to asyncio, if no loop relies on it."""
    loops = _loops(asyncio.BaseEventLoop)
    if any(vars(kind).get("_nest_patched") is True for kind in loops):
        return
    present: Any = asyncio
    events: Any = asyncio.events
    if _is_of(present.run, theirs):
        present.run = asyncio.runners.run
    for module, name in ((present, "get_event_loop"), *((events, name) for name in _EVENTS)):
        if _is_of(getattr(module, name, None), theirs):
            _put_back(module, name)
    for module, name in ((present.tasks, "Task"), (present.futures, "Future")):
        if getattr(module, name) is getattr(module, f"_Py{name}"):
            native = getattr(_asyncio, name)
            setattr(module, name, native)
            setattr(module, f"_C{name}", native)
            setattr(present, name, native)
    _take_back_policy(theirs)
    _take_back_tornado()
    for name in ("_nest_patched", "_nest_asyncio2"):
        if hasattr(present, name):
            delattr(present, name)


def _put_back(module: Any, name: str) -> None:
    native = getattr(_asyncio, name, None)
    if native is None:
        # A name of 3.11, which they give to every version.
        delattr(module, name)
    else:
        setattr(module, name, native)


def _take_back_policy(theirs: Names) -> None:
    events: Any = asyncio.events
    # The public name warns from 3.14 on.
    get = getattr(events, "_get_event_loop_policy", None)
    get = get or getattr(events, "get_event_loop_policy", None)
    if get is not None:
        kind = type(get())
        if _is_of(vars(kind).get("get_event_loop"), theirs):
            # Both asyncio's policy and goloop's inherit this method.
            del kind.get_event_loop


def _take_back_tornado() -> None:
    tornado: Any = sys.modules.get("tornado.concurrent")
    if tornado is not None:
        tornado.Future = asyncio.Future


def _loops(kind: type[asyncio.BaseEventLoop]) -> Iterator[type[asyncio.BaseEventLoop]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _loops(each)


def _is_of(function: object, theirs: Names) -> bool:
    return getattr(function, "__globals__", None) is theirs
