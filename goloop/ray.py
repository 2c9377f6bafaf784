"""Ray's processes on goloop: asynchronous actors, and Serve.

    ray.init(runtime_env={"worker_process_setup_hook": "goloop.ray.setup"})

Ray runs asynchronous actors on uvloop if it is installed, which `ray[serve]` does, and has no
option for another loop. The hook runs in each worker process before its first actor or task.
"""

from __future__ import annotations

from ._internal.process.patch_process import use_goloop

__all__ = ("setup",)


def setup() -> None:
    """Make this process use goloop: Ray's actors in it, and every loop that asyncio creates.

    Meant for `worker_process_setup_hook`, as `"goloop.ray.setup"`, and for drivers that get their
    loops from asyncio; a second call does nothing. It is `goloop.install()` without the deprecation
    warning for policies. Since 0.3.0.

    Raises:
        RuntimeError: asyncio has no event loop policies (planned for 3.16).
    """
    use_goloop()
