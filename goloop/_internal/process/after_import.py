"""Calls a function with a module once that module has been imported, now or later.

A finder before all others lets these find the module, and puts itself between the
module's loader and the import for as long as the import lasts: the module and its spec
have their own loader afterwards.  Importing a module that nobody waits for costs one look
into a dict.
"""

from __future__ import annotations

import sys
import threading

# importlib.abc costs every process that makes a loop more than all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader, MetaPathFinder
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    Action = Callable[[ModuleType], object]
else:
    Loader = MetaPathFinder = object

_actions: dict[str, Action] = {}
# The names that this thread's finder is asking the others for.
_asking = threading.local()


class _Loader(Loader):
    """A module's own loader, and the action after it."""

    def __init__(self, spec: ModuleSpec, loader: Loader) -> None:
        self._spec = spec
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._spec.loader = self._loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader
        self._loader.exec_module(module)
        _act(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _actions or getattr(_asking, "name", None) == name:
            return None
        _asking.name = name
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec: ModuleSpec | None = find(name, path, target) if find else None
                if spec is not None:
                    break
            else:
                return None
        finally:
            _asking.name = None
        # A loader of the kind before PEP 451 stays as it is.
        if spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _Loader(spec, spec.loader)
        return spec


def after_import(name: str, action: Action) -> None:
    """Calls `action(module)` when the module of that name has been imported; once.

    An action that fails is the importer's ImportError no more than a missing one: it says so
    in a warning, and the import goes on.
    """
    if not _actions and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _actions[name] = action
    module = sys.modules.get(name)
    # One whose import goes on in this moment comes by the end of it, if by the finder.
    if module is not None and not getattr(module.__spec__, "_initializing", False):
        _act(module)


def _act(module: ModuleType) -> None:
    action = _actions.pop(module.__name__, None)
    if action is None:
        return
    try:
        action(module)
    except Exception as error:
        import warnings

        warnings.warn(
            f"goloop can't have {module.__name__} use its loop: {error!r}; name the loop "
            "by the program's own option",
            RuntimeWarning,
            stacklevel=2,
        )
