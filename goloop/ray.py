"""Ray's processes on goloop: asynchronous actors, and Serve.

    ray.init(runtime_env={"worker_process_setup_hook": "goloop.ray.setup"})

Ray runs asynchronous actors on uvloop where that is installed, which it is with `ray[serve]`, and
has no option for another loop.  The hook runs in each worker process, before its first actor or
task.
"""

from __future__ import annotations

from ._internal.process.patch_process import use_goloop

__all__ = ("setup",)


def setup() -> None:
    """Put this process on goloop: Ray's actors in it, and every loop that asyncio makes.

    For `worker_process_setup_hook`, as `"goloop.ray.setup"`, and to be called in a driver that
    makes loops through asyncio; again does nothing.  As `goloop.install()`, but without the
    deprecation warning of policies.  Since 0.3.0.

    Raises:
        RuntimeError: asyncio has no event loop policies any more (3.16 is to be the first).
    """
    use_goloop()
