"""Read-only objects with named fields, and the decoder of Go's JSON.

Every program that uses goloop imports this module. So the classes are not dataclasses, whose
methods are compiled for each class: that took longer than creating a loop. And the decoder uses
only the native part of the module `json`, which takes a tenth of goloop's import.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Self, dataclass_transform
else:

    def dataclass_transform(**_):
        """Return a decorator that returns its class: the real one only informs type checkers."""
        return lambda cls: cls


class _Options:
    """The options of json's decoder, all with their defaults."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = parse_constant = float
    parse_int = int


try:
    _scan: Any = __import__("_json").make_scanner(_Options)
except (ImportError, AttributeError, TypeError):  # a Python whose native part differs
    import json

    _scan = json.JSONDecoder().raw_decode


def decode_json(text: str) -> Any:
    """Return the value of a text that Go has encoded, without white space before it."""
    return _scan(text, 0)[0]


class _DataclassFields:
    """The attribute by which dataclasses.fields(), asdict() and replace() know their classes."""

    def __get__(self, instance: object, owner: type[Record]) -> Any:
        """Return the fields of a dataclass that is declared as the class of records is."""
        import dataclasses  # the caller is one of its functions

        known, defaults = owner.__annotations__, owner._defaults
        declared = [
            (name, known[name], dataclasses.field(default=defaults.get(name, dataclasses.MISSING)))
            for name in owner._fields
        ]
        made: Any = dataclasses.make_dataclass(owner.__name__, declared)
        return made.__dataclass_fields__


@dataclass_transform(frozen_default=True)
class Record:
    """A read-only object; its class declares the fields, and defaults of the last of them."""

    _fields: tuple[str, ...] = ()
    _defaults: dict[str, Any] = {}
    __dataclass_fields__ = _DataclassFields()

    def __init_subclass__(cls) -> None:
        """Take the annotated names as the fields."""
        cls._fields = tuple(cls.__annotations__)
        cls._defaults = {name: vars(cls)[name] for name in cls._fields if name in vars(cls)}

    def __init__(self, *values: Any, **named: Any) -> None:
        """Set all fields; TypeError for a missing, an unknown or a repeated one."""
        fields = self._fields
        given = {**self._defaults, **dict(zip(fields, values, strict=False)), **named}
        if len(values) > len(fields) or not named.keys().isdisjoint(fields[: len(values)]):
            raise TypeError(f"{type(self).__name__}() got too many values")
        if len(given) != len(fields) or given.keys() - fields:
            wrong = ", ".join(sorted(given.keys() ^ set(fields)))
            raise TypeError(f"{type(self).__name__}() has missing or unknown fields: {wrong}")
        vars(self).update(given)

    def __setattr__(self, name: str, value: object) -> None:
        """Raise AttributeError: the fields are read-only."""
        raise AttributeError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        """Raise AttributeError: the fields are read-only."""
        raise AttributeError(f"cannot delete field {name!r}")

    def _as_dict(self) -> dict[str, Any]:
        """Return the fields by name, in their order."""
        return {name: getattr(self, name) for name in self._fields}

    def _replace(self, **changed: Any) -> Self:
        """Return a copy with other values of some fields; copy.replace() calls this, too."""
        return type(self)(**{**vars(self), **changed})

    __replace__ = _replace

    def __eq__(self, other: object) -> bool:
        """Compare all fields of two objects of the same class."""
        if type(other) is not type(self):
            return NotImplemented
        return vars(self) == vars(other)

    def __hash__(self) -> int:
        """Return a hash of all fields."""
        return hash(tuple(self._as_dict().values()))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._as_dict().items())
        return f"{type(self).__qualname__}({fields})"
