"""The entry point of every measuring process.

The runner starts it by LAUNCH, which loads this package from the repository's root, and nothing
else from there: the goloop that is measured is the one that the interpreter has installed. The
root on the module path, even as its last entry, would come before an editable install of another
checkout, which a finder after the path entries provides.
"""

from __future__ import annotations

import json
import sys

# The result of describe() for a distribution that is not installed or has no version.
ABSENT = "without metadata"
# The distributions whose versions are recorded, those of the servers' and clients' programs.
PACKAGES = (
    "aiohttp", "uvicorn", "httptools", "h11", "fastapi", "starlette", "pydantic", "httpx", "redis",
    "asyncpg", "websockets", "anyio",
)  # fmt: skip

LAUNCH = """
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
spec = PathFinder.find_spec("benchmarks", [sys.argv[1]])
sys.modules["benchmarks"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["benchmarks"])
from benchmarks.child import main
main(sys.argv[2:])
"""


def describe(factories: list[str]) -> dict[str, object]:
    """Describe this interpreter's version and, for each factory, its distribution.

    Each argument is ``name=module:function=distribution,distribution``.
    """
    import importlib.metadata
    import platform
    import ssl

    from benchmarks.factories import resolve

    loops: dict[str, dict[str, str]] = {}
    for argument in factories:
        name, factory, distributions = argument.split("=")
        entry: dict[str, str] = {}
        try:
            loop = resolve(factory)()
            loop.close()
            entry["version"] = (
                ", ".join(
                    _version(importlib.metadata, distribution)
                    for distribution in distributions.split(",")
                    if distribution
                )
                or f"CPython {platform.python_version()}"
            )
            entry["class"] = f"{type(loop).__module__}.{type(loop).__qualname__}"
        except Exception as error:
            entry["error"] = f"{type(error).__name__}: {error}".splitlines()[0]
        loops[name] = entry
    return {
        "python": platform.python_version(),
        "build": f"{platform.python_implementation()} {sys.version}".split("\n")[0],
        "packages": {name: _version(importlib.metadata, name) for name in PACKAGES},
        "openssl": ssl.OPENSSL_VERSION,
        "loops": loops,
    }


def _version(metadata: object, distribution: str) -> str:
    try:
        return f"{distribution} {metadata.version(distribution)}"  # type: ignore[attr-defined]
    except Exception:
        return f"{distribution} {ABSENT}"


# The programs that measure, or are measured, under a loop.
PROGRAMS = {
    "serve": "serve", "client": "clients", "children": "children", "threads": "threads",
    "storm": "storm", "micro": "micro",
}  # fmt: skip


def main(arguments: list[str]) -> None:
    """Run the action of the first argument; print the result as one JSON line."""
    action, *rest = arguments
    result: object = None
    if action == "describe":
        result = describe(rest)
    elif action == "startup":
        # json is imported above, and its modules weigh the same for every loop.
        from benchmarks import startup

        result = startup.main(rest[0])
    elif action == "limit":
        from benchmarks import micro

        result = micro.limit(rest[0])
    else:
        from importlib import import_module

        from benchmarks.factories import resolve

        program = import_module(f"benchmarks.{PROGRAMS[action]}")
        result = program.main(resolve(rest[0]), *rest[1:])
    if result is not None:
        print(json.dumps(result))
