"""Preloads the bytes of modules that goloop imports late.

Modules that few programs need (`loop.metrics()`) are imported on first use. By then the program may
have changed its root directory or its user, or another version of goloop may be installed, with
modules that do not match the loaded ones. So the bytes of these modules are read when goloop is
imported, which takes a tenth of the time of importing them, and the import uses the bytes.

The finders are entries of sys.path_importer_cache, where Python has one for each folder. They are
used for goloop's folders only, and find all other modules as the default finder does.
"""

from __future__ import annotations

import _imp
import importlib.machinery
import importlib.util
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any

GOLOOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Late modules by folder; each follows the modules that it imports.
LATE_MODULES = {
    "_internal/metrics": (
        *("histogram", "metric_registry", "metrics", "profiling", "profile_formats"),
        *("flight_recorder", "diagnostics"),
    ),
    "_internal/net": (
        *("tls_errors", "handshakes", "tls", "datagrams", "pipes", "selector_transports"),
    ),
    "_internal/tasks": ("stacks",),
    "_internal/process": (
        *("mailbox", "shared_sockets", "shared_listener", "threads", "patch_process"),
    ),
    "operations": ("snapshot", "introspection", "doctor_recorder"),
}
# The modules of the standard library that `metrics` imports. json follows its submodules.
STANDARD_MODULES = ("copy", "dataclasses", "json.scanner", "json.decoder", "json.encoder", "json")

_preloaded: dict[str, tuple[str, bytes, bool]] = {}  # by module: path, bytes, True if compiled


def _read(path: str) -> tuple[str, bytes, bool]:
    """Return a module's path, its bytes, and whether these are compiled.

    They are the compiled file if it matches the source, else the source. Raises OSError.
    """
    try:
        with open(importlib.util.cache_from_source(path), "rb") as file:
            compiled = file.read()
        status = os.stat(path)
        present = (int(status.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
        present += (status.st_size & 0xFFFFFFFF).to_bytes(4, "little")
        # Flags 0: the header has the time and the size of the source.
        if compiled[:16] == importlib.util.MAGIC_NUMBER + bytes(4) + present:
            return path, compiled, True
    except (OSError, NotImplementedError):
        pass  # no compiled file, or a Python that does not write them
    with open(path, "rb") as file:
        return path, file.read(), False


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from its preloaded bytes, which are then freed."""

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the module's code; if it is loaded a second time, from its file."""
        path, content, compiled = _preloaded.pop(fullname, ("", b"", False))
        if not path:
            return super().get_code(fullname)
        if not compiled:
            return self.source_to_code(content, path)
        code: CodeType = marshal.loads(memoryview(content)[16:])
        vars(_imp)["_fix_co_filename"](code, path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Import the standard modules that the module needs, and execute it."""
        if module.__name__.endswith((".histogram", ".metric_registry", ".metrics.metrics")):
            _import_standard()
        super().exec_module(module)


def _spec(name: str) -> ModuleSpec:
    """Return the import spec of a preloaded module."""
    path = _preloaded[name][0]
    folders = [os.path.dirname(path)] if os.path.basename(path) == "__init__.py" else None
    loader = _Loader(name, path)
    spec = importlib.util.spec_from_file_location(
        name, path, loader=loader, submodule_search_locations=folders
    )
    assert spec is not None
    return spec


class _Finder(importlib.machinery.FileFinder):
    """Finds the modules of one folder, preloaded ones first."""

    def find_spec(self, fullname: str, target: Any = None) -> ModuleSpec | None:
        """Return the spec of the preloaded module, or of its file."""
        if fullname in _preloaded:
            return _spec(fullname)
        return super().find_spec(fullname, target)


def _import_standard() -> None:
    """Import the standard modules from disk, or if that fails from the preloaded bytes."""
    try:
        import dataclasses  # noqa: F401
        import json  # noqa: F401
    except ImportError:
        missing = [
            name for name in STANDARD_MODULES if name in _preloaded and name not in sys.modules
        ]
        modules: dict[str, Any] = {
            name: importlib.util.module_from_spec(_spec(name)) for name in missing
        }
        # The modules import each other: all must be in sys.modules before the first is executed.
        sys.modules.update(modules)
        for name, module in modules.items():
            parent, _, last = name.rpartition(".")
            if parent in modules:
                setattr(modules[parent], last, module)
        for module in modules.values():
            module.__loader__.exec_module(module)


def _loaders() -> list[Any]:
    """Return the loaders and suffixes of a FileFinder, as Python's import system uses them."""
    machinery = importlib.machinery
    return [
        (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
        (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
        (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    ]


def preload() -> None:
    """Read the bytes of the late modules, and install the finders that use them.

    Does nothing if goloop's modules are not files (frozen programs). After an OSError the remaining
    modules are read when they are imported.
    """
    if type(__spec__.loader) is not importlib.machinery.SourceFileLoader:
        return
    standard = os.path.dirname(os.path.abspath(os.__file__))
    try:
        for room, names in LATE_MODULES.items():
            folder = os.path.join(GOLOOP, room)
            package = "goloop." + room.replace("/", ".")
            for name in ("__init__", *names):
                module = package if name == "__init__" else f"{package}.{name}"
                if module not in sys.modules:
                    _preloaded[module] = _read(os.path.join(folder, f"{name}.py"))
            finder = _Finder(folder, *_loaders())
            sys.path_importer_cache[folder] = finder
        for folder in (GOLOOP, os.path.join(GOLOOP, "_internal")):
            sys.path_importer_cache[folder] = _Finder(folder, *_loaders())
        for module in STANDARD_MODULES:
            if module not in sys.modules:
                file = "json/__init__.py" if module == "json" else module.replace(".", "/") + ".py"
                _preloaded[module] = _read(os.path.join(standard, file))
    except OSError:
        pass
