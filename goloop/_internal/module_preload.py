"""Modules that goloop imports late, kept in memory from its own import on.

What a program may ask for once its loop runs (`loop.metrics()`) is imported then, for most programs
never ask.  By then the program may have changed its root directory or become another user, or
another version of goloop may lie on disk, whose modules don't fit those that are loaded.  So the
bytes of these modules are read early, which costs a tenth of importing them, and an import takes
the bytes.

The finder stands in sys.path_importer_cache, where Python keeps one for each folder: it is asked
for modules of goloop's folders alone, and finds all others as the one before it did.
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

# By folder of goloop; a module comes behind those that it needs.
OWN = {
    "_internal/metrics": (
        *("histogram", "metric_registry", "metrics", "profiling", "profile_formats"),
        *("flight_recorder", "diagnostics"),
    ),
    "_internal/net": ("selector_transports",),
    "_internal/tasks": ("stacks",),
    "_internal/process": (
        *("mailbox", "shared_sockets", "shared_listener", "threads", "patch_process"),
    ),
    "operations": ("snapshot", "introspection", "doctor_recorder"),
}
# What `metrics` needs of the standard library. json comes behind its parts.
STANDARD = ("copy", "dataclasses", "json.scanner", "json.decoder", "json.encoder", "json")

_kept: dict[str, tuple[str, bytes, bool]] = {}  # path, bytes, whether they are compiled


def _read(path: str) -> tuple[str, bytes, bool]:
    """A module's compiled bytes, if they are of its present source; else the source."""
    try:
        with open(importlib.util.cache_from_source(path), "rb") as file:
            compiled = file.read()
        facts = os.stat(path)
        present = (int(facts.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
        present += (facts.st_size & 0xFFFFFFFF).to_bytes(4, "little")
        # Flags 0: the header has the time and the size of the source.
        if compiled[:16] == importlib.util.MAGIC_NUMBER + bytes(4) + present:
            return path, compiled, True
    except (OSError, NotImplementedError):
        pass  # no compiled file, or a Python that has none
    with open(path, "rb") as file:
        return path, file.read(), False


class _Loader(importlib.machinery.SourceFileLoader):
    """Of a module whose bytes are kept; they are let go of as it is imported."""

    def get_code(self, fullname: str) -> CodeType | None:
        """Its code; of the file's, where it is asked for again."""
        path, content, compiled = _kept.pop(fullname, ("", b"", False))
        if not path:
            return super().get_code(fullname)
        if not compiled:
            return self.source_to_code(content, path)
        code: CodeType = marshal.loads(memoryview(content)[16:])
        vars(_imp)["_fix_co_filename"](code, path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Provides what the module needs of the standard library, and runs it."""
        if module.__name__.endswith((".histogram", ".metric_registry", ".metrics.metrics")):
            _provide_standard()
        super().exec_module(module)


def _spec(name: str) -> ModuleSpec:
    path = _kept[name][0]
    folders = [os.path.dirname(path)] if os.path.basename(path) == "__init__.py" else None
    loader = _Loader(name, path)
    spec = importlib.util.spec_from_file_location(
        name, path, loader=loader, submodule_search_locations=folders
    )
    assert spec is not None
    return spec


class _Finder(importlib.machinery.FileFinder):
    """Of one folder."""

    def find_spec(self, fullname: str, target: Any = None) -> ModuleSpec | None:
        """The module's bytes that are kept, or its file."""
        if fullname in _kept:
            return _spec(fullname)
        return super().find_spec(fullname, target)


def _provide_standard() -> None:
    """Imports what is found on disk, and the rest from memory."""
    try:
        import dataclasses  # noqa: F401
        import json  # noqa: F401
    except ImportError:
        missing = [name for name in STANDARD if name in _kept and name not in sys.modules]
        made: dict[str, Any] = {
            name: importlib.util.module_from_spec(_spec(name)) for name in missing
        }
        # They import each other, and so are all there before the first one runs.
        sys.modules.update(made)
        for name, module in made.items():
            parent, _, last = name.rpartition(".")
            if parent in made:
                setattr(made[parent], last, module)
        for module in made.values():
            module.__loader__.exec_module(module)


def _loaders() -> list[Any]:
    machinery = importlib.machinery
    return [
        (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
        (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
        (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    ]


def keep() -> None:
    """Read the modules; nothing where they are no files, as in a frozen program."""
    if type(__spec__.loader) is not importlib.machinery.SourceFileLoader:
        return
    standard = os.path.dirname(os.path.abspath(os.__file__))
    try:
        for room, names in OWN.items():
            folder = os.path.join(GOLOOP, room)
            package = "goloop." + room.replace("/", ".")
            for name in ("__init__", *names):
                module = package if name == "__init__" else f"{package}.{name}"
                if module not in sys.modules:
                    _kept[module] = _read(os.path.join(folder, f"{name}.py"))
            finder = _Finder(folder, *_loaders())
            sys.path_importer_cache[folder] = finder
        for folder in (GOLOOP, os.path.join(GOLOOP, "_internal")):
            sys.path_importer_cache[folder] = _Finder(folder, *_loaders())
        for module in STANDARD:
            if module not in sys.modules:
                file = "json/__init__.py" if module == "json" else module.replace(".", "/") + ".py"
                _kept[module] = _read(os.path.join(standard, file))
    except OSError:
        pass  # then these are read when they are imported
