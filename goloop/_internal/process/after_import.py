"""Calls a function with a module when that module has been imported, now or later.

A finder at the front of sys.meta_path lets the other finders find the module, and wraps the
module's loader during the import. Afterwards the module and its spec have their own loader again.
The import of any other module costs one dict lookup.
"""

from __future__ import annotations

import sys
import threading
import warnings

# Not importlib.abc, which takes longer to import than this whole module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader, MetaPathFinder
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Action = Callable[[ModuleType], object]
else:
    MetaPathFinder = object

_actions: dict[str, Action] = {}
# `name` is the module for which this thread's finder currently calls the other finders.
_searching = threading.local()


class _Loader:
    """Wraps a module's own loader, and runs the action after it.

    All other methods and attributes are the own loader's, and isinstance() takes the object for
    one of its class: a spec may be asked for the module's source without an import.
    """

    def __init__(self, spec: ModuleSpec, loader: Loader) -> None:
        """Wrap `loader`, the loader of the module of `spec`."""
        self._spec = spec
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the module's own loader."""
        return getattr(self._loader, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Return the class of the module's own loader."""
        return type(self._loader)

    def __repr__(self) -> str:
        """Return the repr() of the module's own loader."""
        return repr(self._loader)

    def __reduce_ex__(self, protocol: Any) -> str | tuple[Any, ...]:
        """Return the parts of a copy, which is one of the module's own loader."""
        return self._loader.__reduce_ex__(protocol)

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own loader, execute the module, and run the action for it."""
        self._spec.loader = self._loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        _run_action(module)


class _Finder(MetaPathFinder):
    """Finds modules with an action through the other finders, and wraps their loaders."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module with an action, with a wrapped loader; else None."""
        if name not in _actions or getattr(_searching, "name", None) == name:
            return None
        _searching.name = name
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find(name, path, target) if find else None
                if spec is not None:
                    break
            else:
                return None
        finally:
            _searching.name = None
        # Loaders from before PEP 451 are not wrapped.
        if spec.loader is not None and hasattr(spec.loader, "exec_module"):
            wrapped: Any = _Loader(spec, spec.loader)
            spec.loader = wrapped
        return spec


def after_import(name: str, action: Action) -> None:
    """Call `action(module)` once, when the module of that name has been imported; now if it is.

    An exception of the action does not make the import fail; it is reported by a warning. A second
    call for the same name replaces an action that has not run yet.
    """
    if not _actions and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _actions[name] = action
    module = sys.modules.get(name)
    # A module that is just being imported gets the action at the end, if the finder found it.
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        _run_action(module)


def _run_action(module: ModuleType) -> None:
    """Run and remove the module's action, if there is one; warn if it raises an Exception."""
    action = _actions.pop(module.__name__, None)
    if action is None:
        return
    try:
        action(module)
    except Exception as error:
        warnings.warn(
            f"goloop cannot make {module.__name__} use its loop: {error!r}; select the loop "
            "with the program's own option",
            RuntimeWarning,
            stacklevel=2,
        )
