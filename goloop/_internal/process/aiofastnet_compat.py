"""aiohttp's connections are goloop's own on a loop of goloop's, where aiofastnet is installed, too.

From 3.15 on aiohttp makes its connections by aiofastnet's functions wherever it finds that package,
and these work on add_reader.  The functions that aiohttp has taken are replaced in its modules by
ones that ask the loop if it is goloop's, and aiofastnet otherwise.  A program that calls
aiofastnet itself, or has it patch its loop, gets what it asks for.
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


def begin() -> None:
    """Called for each loop that is made; the first one has it done for the process."""
    global _begun
    if _begun:
        return
    _begun = True
    if os.environ.get("GOLOOP_AIOFASTNET") != "1":
        after_import("aiohttp.net_helpers", _delegate)


def _theirs(value: object) -> bool:
    return (getattr(value, "__module__", None) or "").partition(".")[0] == "aiofastnet"


def _delegating(name: str, original: Method) -> Method:
    @functools.wraps(original)
    async def delegated(loop: Any, *args: Any, **kwargs: Any) -> Any:
        # The first argument may be a transport, and aiofastnet's are for its functions alone.
        if not isinstance(loop, _core.Loop) or (args and _theirs(type(args[0]))):
            return await original(loop, *args, **kwargs)
        return await getattr(loop, name)(*args, **kwargs)

    return delegated


def _delegate(module: ModuleType) -> None:
    """Replaces the functions in the module, and in those that have them from it already."""
    taken: dict[str, Any] = {name: getattr(module, name, None) for name in _NAMES}
    functions = {
        name: _delegating(name, original) for name, original in taken.items() if _theirs(original)
    }
    for name, user in list(sys.modules.items()):
        if name.partition(".")[0] != "aiohttp":
            continue
        for function, replacement in functions.items():
            if vars(user).get(function) is taken[function]:
                setattr(user, function, replacement)
