"""What is linked into the two libraries of a wheel, as CycloneDX has it (ECMA-424).

A wheel carries the document in its .dist-info/sboms (PEP 770).  Only what is in the
binaries counts: the Go modules that pybridge/golib imports, Go's runtime and standard
library, and what the compiler adds of its own.
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
    """The document for goloop of that version, built as the environment says."""
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
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "licenses": [{"license": {"id": spdx}}],
        "purl": purl,
    }


def _go() -> dict[str, object]:
    found = toolchain.go_version(toolchain.go())
    assert found is not None, "toolchain.go() has asked it"
    version = "{}.{}.{}".format(*found)
    return _component("stdlib", version, f"pkg:golang/stdlib@{version}", "BSD-3-Clause")


def _modules() -> list[dict[str, object]]:
    """The one module outside this tree that the library imports; a test looks for others."""
    with open("go.mod", encoding="utf-8") as file:
        found = re.search(r"golang\.org/x/sys v(\S+)", file.read())
    assert found is not None, "netloop imports it"
    purl = f"pkg:golang/golang.org/x/sys@v{found[1]}"
    return [_component("golang.org/x/sys", f"v{found[1]}", purl, "BSD-3-Clause")]


def _zig() -> dict[str, object]:
    """compiler-rt, of which zig links what the code calls."""
    command = [*shlex.split(target.zig()), "version"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return _component("compiler_rt", version, f"pkg:generic/zig@{version}", "MIT")
