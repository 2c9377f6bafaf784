"""The software bill of materials of a wheel, in the format CycloneDX (ECMA-424).

A wheel contains the document in .dist-info/sboms (PEP 770).  It lists the components that
are linked into the two libraries: the Go modules that pybridge/golib imports, Go's runtime
and standard library, and the compiler's own runtime.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time

from . import target, toolchain
from .archives import source_date

NAME = "sboms/goloop.cdx.json"


def document(version: str) -> bytes:
    """Returns the document for a version of goloop and the target of the environment."""
    components = [_go(), *_modules()]
    if target.target() is not None:
        components.append(_zig())
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(source_date())),
            "component": _component("goloop", version, f"pkg:pypi/goloop@{version}", "MIT"),
        },
        "components": components,
        "dependencies": [
            {
                "ref": f"pkg:pypi/goloop@{version}",
                "dependsOn": [each["bom-ref"] for each in components],
            }
        ],
    }
    return (json.dumps(bom, indent=2) + "\n").encode()


def _component(name: str, version: str, purl: str, spdx: str) -> dict[str, object]:
    """Returns the entry of a library; `purl` is its package URL, `spdx` its licence's id."""
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": [{"license": {"id": spdx}}],
        "purl": purl,
    }


def _go() -> dict[str, object]:
    """Returns the entry of Go's runtime and standard library."""
    found = toolchain.go_version(toolchain.go())
    assert found is not None, "toolchain.go() has run it"
    version = "{}.{}.{}".format(*found)
    return _component("stdlib", version, f"pkg:golang/stdlib@{version}", "BSD-3-Clause")


def _modules() -> list[dict[str, object]]:
    """Returns the entry of golang.org/x/sys, the only other module that the library imports.

    A test fails if the library imports a further one.
    """
    with open("go.mod", encoding="utf-8") as file:
        found = re.search(r"golang\.org/x/sys v(\S+)", file.read())
    assert found is not None, "netloop imports it"
    purl = f"pkg:golang/golang.org/x/sys@v{found[1]}"
    return [_component("golang.org/x/sys", f"v{found[1]}", purl, "BSD-3-Clause")]


def _zig() -> dict[str, object]:
    """Returns the entry of compiler-rt, from which zig links the functions that the code calls."""
    command = [*shlex.split(target.zig()), "version"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return _component("compiler_rt", version, f"pkg:generic/zig@{version}", "MIT")
