"""Two libraries that change asyncio's loops: nest_asyncio and aiofastnet.

nest_asyncio is refused: apply() on a goloop loop raises an error. It makes asyncio's loops
reentrant: it replaces the methods that run a loop by Python ones, which take handles from
asyncio's own queues and poll its selector. goloop's queues are native, and it has no selector: a
patched loop would run nothing, forever. apply() first changes asyncio for the whole process: tasks
and futures in Python, another `asyncio.run`, another `get_event_loop`, also of the policy. Then it
reads the loop's attribute `_nest_patched`. At that point the changes are undone, unless a loop of
asyncio's was patched earlier and relies on them, and an error is raised.

aiofastnet is used only on other loops. From 3.15 on aiohttp creates its connections with
aiofastnet's functions if that package is installed, and these use add_reader. In aiohttp's modules
the functions are replaced by wrappers that call the loop's method if the loop is goloop's, and
aiofastnet otherwise. A program that calls aiofastnet itself, or lets aiofastnet patch its loop, is
not affected. With GOLOOP_AIOFASTNET=1 in the environment nothing is replaced.
"""

from __future__ import annotations

import _asyncio
import asyncio
import asyncio.runners
import functools
import os
import sys

from ... import _core
from .after_import import after_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType, ModuleType
    from typing import Any, NoReturn

    Method = Callable[..., Coroutine[Any, Any, Any]]
    Globals = dict[str, Any]

# ---- nest_asyncio ------------------------------------------------------------------------

# The function of nest_asyncio, and of its successors, that reads the attribute.
_PATCHING_FUNCTION = "_patch_loop"
# The replaced functions of asyncio.events.
_EVENTS = ("get_event_loop", "_get_event_loop")


def refuse_patching(loop: object, owner: type, caller: FrameType) -> NoReturn:
    """Raise the error for an access to `_nest_patched` by the code of the frame `caller`.

    The function that patches a loop gets ValueError, after its changes to asyncio are undone. All
    other code gets AttributeError.
    """
    if loop is None or caller.f_code.co_name != _PATCHING_FUNCTION:
        raise AttributeError(f"{owner.__name__!r} object has no attribute '_nest_patched'")
    _undo_patches(caller.f_globals)
    raise ValueError(
        f"Can't patch loop of type {owner}: a goloop loop cannot run within itself, so "
        f"nest_asyncio.apply() is refused. Use `await` (notebooks allow it at the top of a "
        f"cell), or run the coroutine in a thread of its own: "
        f"threading.Thread(target=goloop.run, args=(main(),))"
    )


def _undo_patches(module_globals: Globals) -> None:
    """Undo the changes to asyncio by the module with these globals, if no loop relies on them."""
    loops = _loop_classes(asyncio.BaseEventLoop)
    if any(vars(kind).get("_nest_patched") is True for kind in loops):
        return
    asyncio_module: Any = asyncio
    events: Any = asyncio.events
    if _is_defined_in(asyncio_module.run, module_globals):
        asyncio_module.run = asyncio.runners.run
    for module, name in ((asyncio_module, "get_event_loop"), *((events, name) for name in _EVENTS)):
        if _is_defined_in(getattr(module, name, None), module_globals):
            _restore_function(module, name)
    for module, name in ((asyncio_module.tasks, "Task"), (asyncio_module.futures, "Future")):
        if getattr(module, name) is getattr(module, f"_Py{name}"):
            native = getattr(_asyncio, name)
            setattr(module, name, native)
            setattr(module, f"_C{name}", native)
            setattr(asyncio_module, name, native)
    _undo_policy_patch(module_globals)
    _undo_tornado_patch()
    for name in ("_nest_patched", "_nest_asyncio2"):
        if hasattr(asyncio_module, name):
            delattr(asyncio_module, name)


def _restore_function(module: Any, name: str) -> None:
    """Set a module's attribute to the native function, or delete it if there is none."""
    native = getattr(_asyncio, name, None)
    if native is None:
        # A name of 3.11, which apply() sets in every version.
        delattr(module, name)
    else:
        setattr(module, name, native)


def _undo_policy_patch(module_globals: Globals) -> None:
    """Undo the change of the event loop policy."""
    events: Any = asyncio.events
    # The public name raises a DeprecationWarning from 3.14 on.
    get = getattr(events, "_get_event_loop_policy", None)
    get = get or getattr(events, "get_event_loop_policy", None)
    if get is not None:
        kind = type(get())
        if _is_defined_in(vars(kind).get("get_event_loop"), module_globals):
            # Both asyncio's policy and goloop's inherit this method.
            del kind.get_event_loop


def _undo_tornado_patch() -> None:
    """Undo the change of tornado, if it is imported."""
    tornado: Any = sys.modules.get("tornado.concurrent")
    if tornado is not None:
        tornado.Future = asyncio.Future


def _loop_classes(kind: type[asyncio.BaseEventLoop]) -> Iterator[type[asyncio.BaseEventLoop]]:
    """Yield a class of loops and all its subclasses."""
    yield kind
    for each in kind.__subclasses__():
        yield from _loop_classes(each)


def _is_defined_in(function: object, module_globals: Globals) -> bool:
    """Return true if the function is defined in the module with these globals."""
    return getattr(function, "__globals__", None) is module_globals


# ---- aiofastnet --------------------------------------------------------------------------

_NAMES = ("create_connection", "create_server", "start_tls", "sendfile")

_begun = False


def patch_aiohttp() -> None:
    """Have aiohttp's functions replaced after its import, unless GOLOOP_AIOFASTNET=1.

    Called for each new loop; only the first call in a process has an effect and reads the variable.
    """
    global _begun
    if _begun:
        return
    _begun = True
    if os.environ.get("GOLOOP_AIOFASTNET") != "1":
        after_import("aiohttp.net_helpers", _replace_functions)


def _is_from_aiofastnet(value: object) -> bool:
    """Return true if a function or class is aiofastnet's."""
    return (getattr(value, "__module__", None) or "").partition(".")[0] == "aiofastnet"


def _prefer_loop_method(name: str, original: Method) -> Method:
    """Return a wrapper that calls the method of a goloop loop, and otherwise aiofastnet."""

    @functools.wraps(original)
    async def delegated(loop: Any, *args: Any, **kwargs: Any) -> Any:
        """Await the loop's method `name`, or aiofastnet's function for its transports and loops.

        aiofastnet's function is used if the loop is not goloop's or the transport is aiofastnet's.
        """
        # The first argument may be an aiofastnet transport, which needs aiofastnet's functions.
        if not isinstance(loop, _core.Loop) or (args and _is_from_aiofastnet(type(args[0]))):
            return await original(loop, *args, **kwargs)
        return await getattr(loop, name)(*args, **kwargs)

    return delegated


def _replace_functions(module: ModuleType) -> None:
    """Replace the functions in the module, and in modules that have imported them from it."""
    originals: dict[str, Any] = {name: getattr(module, name, None) for name in _NAMES}
    functions = {
        name: _prefer_loop_method(name, original)
        for name, original in originals.items()
        if _is_from_aiofastnet(original)
    }
    for name, user in list(sys.modules.items()):
        if name.partition(".")[0] != "aiohttp":
            continue
        for function, replacement in functions.items():
            if vars(user).get(function) is originals[function]:
                setattr(user, function, replacement)
