"""Functions of C modules, replaced for one thread.

A program has many references to `time.monotonic`: imported by name, kept as defaults, in C.  So the
function itself is changed: its method definition becomes one that asks here which thread calls.
That is for functions without arguments, which raise nothing.  Methods of C classes are replaced in
the class.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from typing import Any

_NOARGS = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p)


class _Definition(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


class _Function(ctypes.Structure):
    """What PyCFunctionObject begins with, behind the object's head."""

    _fields_ = [("definition", ctypes.c_void_p), ("owner", ctypes.c_void_p)]


_METH_NOARGS = 4


class Replaced:
    """A built-in function without arguments that calls another one.

    `original` calls what it was before.
    """

    def __init__(self, function: Any, replacement: Callable[[Callable[[], Any]], Any]) -> None:
        self._function = function  # must not end before
        self._struct = _Function.from_address(id(function) + object.__basicsize__)
        self._before = self._struct.definition
        before = _Definition.from_address(self._before)
        if before.flags != _METH_NOARGS:
            raise TypeError(f"{function!r} takes arguments")
        call, owner = _NOARGS(before.function), self._struct.owner

        def original() -> Any:
            return call(owner, None)

        def replaced(_owner: int, _none: int) -> Any:
            return replacement(original)

        self._callback = _NOARGS(replaced)
        called = ctypes.cast(self._callback, ctypes.c_void_p)
        self._definition = _Definition(before.name, called, before.flags, before.doc)
        self._struct.definition = ctypes.addressof(self._definition)

    def restore(self) -> None:
        """The function is as it was."""
        self._struct.definition = self._before


class ReplacedMethod:
    """A method of a class of C's, which Python can't set."""

    def __init__(self, cls: type, name: str, replacement: Any) -> None:
        [self._dict] = gc.get_referents(vars(cls))
        self._cls, self._name, self._before = cls, name, self._dict[name]
        self._set(replacement)

    def _set(self, value: Any) -> None:
        self._dict[self._name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(self._cls))

    def restore(self) -> None:
        """The method is as it was."""
        self._set(self._before)


class ReplacedAttribute:
    """An attribute of a module or a class of Python's."""

    _ABSENT = object()

    def __init__(self, owner: Any, name: str, replacement: Any) -> None:
        self._owner, self._name = owner, name
        self._before = vars(owner).get(name, self._ABSENT)
        setattr(owner, name, replacement)

    def restore(self) -> None:
        """The attribute is as it was."""
        if self._before is self._ABSENT:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)
