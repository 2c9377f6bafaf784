"""A gunicorn worker that serves ASGI applications with uvicorn, on goloop:

    gunicorn --worker-class goloop.uvicorn_worker.GoloopUvicornWorker package.module:app

It is the worker of the package uvicorn-worker with another loop, so all of gunicorn's settings for
that worker apply. Importing this module needs gunicorn, uvicorn 0.36 or later, and uvicorn-worker
(or a uvicorn that still contains the worker, in uvicorn.workers).
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ("GoloopUvicornWorker",)

if not hasattr(importlib.import_module("uvicorn.config").Config, "get_loop_factory"):
    # An older uvicorn calls the name in `loop` to set the policy, and would silently use asyncio's
    # loop.
    raise ImportError("goloop.uvicorn_worker needs uvicorn 0.36 or later")

_UvicornWorker: Any
try:
    _UvicornWorker = importlib.import_module("uvicorn_worker").UvicornWorker
except ModuleNotFoundError:
    _UvicornWorker = importlib.import_module("uvicorn.workers").UvicornWorker


class GoloopUvicornWorker(_UvicornWorker):  # type: ignore[misc]
    """uvicorn's gunicorn worker with a goloop loop. Since 0.3.0."""

    CONFIG_KWARGS: dict[str, Any] = {
        **_UvicornWorker.CONFIG_KWARGS,
        "loop": "goloop:new_event_loop",
    }
