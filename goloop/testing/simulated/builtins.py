"""Patches of built-in functions, of methods of C classes and of attributes.

A program has many references to `time.monotonic`: names that it imported, default arguments,
references in C.  Therefore the function object itself is patched: its method definition is replaced
by one that calls a Python function here.  That works for functions without arguments, and the
replacement must not raise.  Methods of C classes are replaced in the class.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

_NOARGS = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)


class _Definition(ctypes.Structure):
    """The C struct PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class _Function(ctypes.Structure):
    """The first fields of the C struct PyCFunctionObject after the object header."""

    _fields_ = [("definition", ctypes.c_void_p), ("owner", ctypes.c_void_p)]


_METH_NOARGS = 4


class Replaced:
    """A patch of a built-in function without arguments.

    Calls of the function become calls of `replacement(original)`, where `original()` calls the
    unpatched function.
    """

    def __init__(self, function: Any, replacement: Callable[[Callable[[], Any]], Any]) -> None:
        """Install the patch until restore(); TypeError if the function takes arguments."""
        self._function = function  # the patched object must outlive the patch
        self._struct = _Function.from_address(id(function) + object.__basicsize__)
        self._before = self._struct.definition
        before = _Definition.from_address(self._before)
        if before.flags != _METH_NOARGS:
            raise TypeError(f"{function!r} takes arguments")
        call, owner = _NOARGS(before.function), self._struct.owner

        def original() -> Any:
            """Call the unpatched function."""
            return call(owner, None)

        def replaced(_owner: int, _none: int) -> Any:
            """Call the replacement; a C function without arguments, called by the interpreter."""
            return replacement(original)

        self._callback = _NOARGS(replaced)
        called = ctypes.cast(self._callback, ctypes.c_void_p)
        self._definition = _Definition(before.name, called, before.flags, before.doc)
        self._struct.definition = ctypes.addressof(self._definition)

    def restore(self) -> None:
        """Undo the patch of the function."""
        self._struct.definition = self._before


class ReplacedMethod:
    """A patch of a method of a C class, which setattr() can't change."""

    def __init__(self, cls: type, name: str, replacement: Any) -> None:
        """Install the patch."""
        [self._dict] = gc.get_referents(vars(cls))
        self._cls, self._name, self._before = cls, name, self._dict[name]
        self._set(replacement)

    def _set(self, value: Any) -> None:
        """Set the method in the class's own dict, and clear CPython's method cache."""
        self._dict[self._name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(self._cls))

    def restore(self) -> None:
        """Undo the patch of the method."""
        self._set(self._before)


class ReplacedAttribute:
    """A patch of an attribute of a module or of a Python class."""

    _ABSENT = object()

    def __init__(self, owner: Any, name: str, replacement: Any) -> None:
        """Install the patch."""
        self._owner, self._name = owner, name
        self._before = vars(owner).get(name, self._ABSENT)
        setattr(owner, name, replacement)

    def restore(self) -> None:
        """Undo the patch of the attribute."""
        if self._before is self._ABSENT:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)
