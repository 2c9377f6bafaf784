"""The class that every part of the loop extends.

`CoreLoop` puts the native loop before CPython's own `BaseEventLoop`.  What runs
per callback is found in `_core.Loop`; what runs per connection or per loop is
found in the running version's `BaseEventLoop`, so that its argument names, checks,
errors and warnings are CPython's by construction.  The other modules of this
package fill in what `BaseEventLoop` leaves to its subclasses.

The attributes below belong to `BaseEventLoop`; they are declared here for the type
checker only, because they are not part of asyncio's published types.
"""

from __future__ import annotations

import asyncio.base_events
from collections.abc import Callable
from concurrent.futures import Executor

from ... import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class CoreLoop(_core.Loop, asyncio.base_events.BaseEventLoop):
    """The native loop over the inherited one; not usable by itself."""

    # Asks for call_at(): what the native call_later stands aside for where that is another one.
    _call_later = asyncio.base_events.BaseEventLoop.call_later

    # The figures of catalogue.py that are counted in Python.
    _tally: dict[str, int]

    slow_callback_duration: float
    _default_executor: Executor | None
    _internal_fds: int
    __del__: Callable[..., None]
    _check_running: Callable[[], None]
    _check_default_executor: Callable[[], None]
    _check_callback: Callable[[object, str], None]
    _set_coroutine_origin_tracking: Callable[[bool], None]
    _asyncgen_firstiter_hook: Callable[[Any], None]
    _asyncgen_finalizer_hook: Callable[[Any], None]
    _check_sendfile_params: Callable[..., None]
    _ensure_resolved: Callable[..., Any]

    def _count(self, figure: str, by: int = 1) -> None:
        self._tally[figure] = self._tally.get(figure, 0) + by

    def _metrics(self) -> dict[str, Any]:
        """The figures as they are counted; catalogue.unpacked() gives them names."""
        return {"counted": self._counted(), **self._tally}
