"""Gives errors about wrong calls the method names of asyncio.

asyncio's methods are Python functions. CPython's error for a wrong call has the function's
qualified name: "BaseEventLoop.call_soon() missing 1 required positional argument: 'callback'".
Programs, their tests and web searches rely on these texts. So

* `use_asyncio_names` gives goloop's Python methods the qualified names of asyncio's methods, which
  appear in errors about arguments, in "was never awaited", and in the repr of a coroutine.
  Tracebacks and profilers use the code object, and show goloop's names;
* `refuse` raises the error for a wrong call of a native method. C calls it for wrong calls only.
"""

from __future__ import annotations

import asyncio.events
import asyncio.selector_events
import asyncio.unix_events
import inspect
from types import FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

_selector_events: Any = asyncio.selector_events
_unix_events: Any = asyncio.unix_events

LOOP: type = _unix_events._UnixSelectorEventLoop

# asyncio's counterpart of each goloop class, by class name.
_ASYNCIO_CLASSES: dict[str, type] = {
    "StreamTransport": _selector_events._SelectorSocketTransport,
    "DatagramTransport": _selector_events._SelectorDatagramTransport,
    "ReadPipeTransport": _unix_events._UnixReadPipeTransport,
    "WritePipeTransport": _unix_events._UnixWritePipeTransport,
    "TimerHandle": asyncio.events.TimerHandle,
    "Handle": asyncio.events.Handle,
}


def _asyncio_class(cls: type) -> type:
    """Return asyncio's counterpart of a goloop class; LOOP if _ASYNCIO_CLASSES has none."""
    for base in cls.__mro__:
        if base.__name__ in _ASYNCIO_CLASSES and base.__module__.startswith("goloop"):
            return _ASYNCIO_CLASSES[base.__name__]
    return LOOP


def use_asyncio_names(goloop_class: type, asyncio_class: type | None = None) -> None:
    """Give the methods of a goloop class the qualified names of asyncio's methods."""
    asyncio_class = asyncio_class or _asyncio_class(goloop_class)
    for name, method in vars(goloop_class).items():
        # Constructors keep their names, because their parameters differ.
        if isinstance(method, FunctionType) and not name.startswith("__"):
            asyncio_method = getattr(asyncio_class, name, None)
            if isinstance(asyncio_method, FunctionType):
                method.__qualname__ = asyncio_method.__qualname__


def refuse_data(transport: object, data: object) -> NoReturn:
    """Raise asyncio's error for a write() or sendto() of an object that is not bytes-like.

    That is TypeError with asyncio's text, but AssertionError for the write end of a pipe.
    """
    asyncio_class: Any = _asyncio_class(type(transport))
    if asyncio_class is _unix_events._UnixWritePipeTransport:
        raise AssertionError(repr(data))
    constants = getattr(asyncio_class, "sendto", asyncio_class.write).__code__.co_consts
    words = [c for c in constants if isinstance(c, str) and c.endswith(" object, not ")]
    words.append("data argument must be a bytes-like object, not ")
    raise TypeError(f"{words[0]}{type(data).__name__!r}")


def refuse(name: str, self: object, given: tuple[Any, ...], names: tuple[str, ...]) -> NoReturn:
    """Raise CPython's error for a call of asyncio's method `name` with these wrong arguments.

    `given` has all arguments, and `names` are the keywords of the last ones. To get the error, an
    empty function with the same parameters is created and called.
    """
    method = inspect.unwrap(getattr(_asyncio_class(type(self)), name.rpartition(".")[2], refuse))
    signature = inspect.signature(method)
    empty = inspect.Parameter.empty
    parameters = [
        p.replace(annotation=empty, default=empty if p.default is empty else None)
        for p in signature.parameters.values()
    ]
    bare = signature.replace(parameters=parameters, return_annotation=empty)
    scope: dict[str, Any] = {}
    exec(f"def refused{bare}: pass", scope)
    scope["refused"].__qualname__ = method.__qualname__
    args = given[: len(given) - len(names)]
    kwargs = dict(zip(names, given[len(args) :], strict=True))
    scope["refused"](self, *args, **kwargs)
    # Reached only by a keyword that compares differently each time, so that the call succeeded.
    raise TypeError(f"{name}() got wrong arguments")


def fd_number(file: Any) -> int:
    """Return the number of an object's fileno(); C calls this for objects that are not ints.

    Raises asyncio's ValueError if the object has no fileno(), or one that is not a number.
    """
    try:
        return int(file.fileno())
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"Invalid file object: {file!r}") from None
