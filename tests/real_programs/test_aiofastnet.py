"""aiohttp 3.15 where aiofastnet is installed: which transports it has on a loop of goloop's.

aiohttp's module of functions that it takes from aiofastnet is played here, until that release can
be had; aiofastnet itself is the released one.
"""

from __future__ import annotations

import pytest
from tls_tools import identity

from real_programs.programs import APPS, Programs, needs

needs("aiofastnet", "aiohttp")

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("way", "package", "environ"),
    [
        ("early", "goloop", {}),
        ("late", "goloop", {}),
        ("early", "aiofastnet", {"GOLOOP_AIOFASTNET": "1"}),
        *((way, "aiofastnet", {}) for way in ("asyncio", "functions", "patch", "mixed")),
    ],
)
def test_aiohttp_has_goloops_transports_on_goloop_or_aiofastnets_if_asked(
    programs: Programs, way: str, package: str, environ: dict[str, str]
) -> None:
    own = identity()
    said = programs.ends_well(APPS / "aiofastnet_app.py", own.certificate, own.key, way, **environ)
    assert f"transports {package} {package} {package}\n" in said
