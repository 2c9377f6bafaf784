"""Makes aiohttp use goloop's own connections on goloop's loops, even if aiofastnet is installed.

From 3.15 on aiohttp creates its connections with aiofastnet's functions if that package is
installed, and these use add_reader. In aiohttp's modules the functions are replaced by wrappers
that call the loop's method if the loop is goloop's, and aiofastnet otherwise. A program that calls
aiofastnet itself, or lets aiofastnet patch its loop, is not affected. With GOLOOP_AIOFASTNET=1 in
the environment nothing is replaced.
"""

from __future__ import annotations

import functools
import os
import sys

from ... import _core
from .after_import import after_import

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import ModuleType
    from typing import Any

    Method = Callable[..., Coroutine[Any, Any, Any]]

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
