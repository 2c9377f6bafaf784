"""goloop.diagnostics: information about this process and its loop, for bug reports."""

from __future__ import annotations

import asyncio
import sys

from .. import backend
from ..version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def diagnostics(loop: asyncio.AbstractEventLoop | None = None) -> dict[str, Any]:
    """Return information about the package, the Go library and a loop, for bug reports.

    The call does not open the library. These keys always exist: `goloop` (the version), `native`,
    `python`, `platform`, `executable`. If `native` is False, `reason` explains it; otherwise there
    are `library`, `tls` (how TLS is done) and `tasks` (the class of tasks), and for a goloop loop
    `loop` (its counters) and `runtime` (Go's). Nested names and values may change in any version.
    Since 0.3.0.

    Args:
        loop: A loop; by default the running one.

    Returns:
        A dict with values that json can serialize.
    """
    # Imported here because few programs need them.
    # Not needed by programs that only run.
    import json
    import platform

    if loop is None:
        loop = asyncio._get_running_loop()
    facts: dict[str, Any] = {
        "goloop": __version__,
        "native": backend.native,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        # Not platform.platform(), which may start a process.
        "platform": " ".join((platform.system(), platform.release(), platform.machine())),
        "executable": sys.executable,
    }
    if not backend.native:
        from ..process import fallback

        facts["reason"] = fallback.reason()
        return facts
    from ... import _core
    from ..loop import library
    from ..tasks import tasks

    facts["library"] = _core.library_info()
    facts["tls"] = library.openssl_reason or "OpenSSL called directly"
    facts["tasks"] = "goloop.Task" if tasks.reason is None else f"asyncio.Task: {tasks.reason}"
    if isinstance(loop, _core.Loop):
        counters = loop._diagnostics()
        runtime = counters.pop("runtime", None)
        facts["loop"] = counters
        if isinstance(runtime, str):
            facts["runtime"] = json.loads(runtime)
    return facts
