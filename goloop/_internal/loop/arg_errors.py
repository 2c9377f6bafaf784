"""asyncio's names in the answers to wrong calls.

asyncio's methods are Python functions, whose qualified names stand in what CPython says of a call
that does not fit: "BaseEventLoop.call_soon() missing 1 required positional argument: 'callback'".
Programs, their tests and those who search the web know these sentences.  So

* `named_as` gives goloop's Python methods the qualified names of those that they stand for: that
  is what errors of arguments, "was never awaited", and the repr of a coroutine show.
  Tracebacks and profilers go by the code, and show goloop's;
* `refuse` words a wrong call of a native method, for C.  Nothing of it runs for one that is right.
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

# asyncio's class for each of goloop's that has one, by name.
_THEIRS: dict[str, type] = {
    "StreamTransport": _selector_events._SelectorSocketTransport,
    "DatagramTransport": _selector_events._SelectorDatagramTransport,
    "ReadPipeTransport": _unix_events._UnixReadPipeTransport,
    "WritePipeTransport": _unix_events._UnixWritePipeTransport,
    "TimerHandle": asyncio.events.TimerHandle,
    "Handle": asyncio.events.Handle,
}


def _theirs(cls: type) -> type:
    for base in cls.__mro__:
        if base.__name__ in _THEIRS and base.__module__.startswith("goloop"):
            return _THEIRS[base.__name__]
    return LOOP


def named_as(ours: type, theirs: type | None = None) -> None:
    """Gives the methods of a class the qualified names that they have in asyncio's."""
    theirs = theirs or _theirs(ours)
    # inspect.getattr_static would find the same in ten times the time, at each start of a program.
    models: dict[str, object] = {}
    for base in reversed(theirs.__mro__):
        models.update(vars(base))
    for name, method in vars(ours).items():
        # A constructor has parameters of its own.
        if isinstance(method, FunctionType) and not name.startswith("__"):
            model = models.get(name)
            if isinstance(model, FunctionType):
                method.__qualname__ = model.__qualname__


def refuse_data(transport: object, data: object) -> NoReturn:
    """Raises what the running asyncio says of a write() or sendto() of what is no bytes."""
    theirs: Any = _theirs(type(transport))
    if theirs is _unix_events._UnixWritePipeTransport:
        raise AssertionError(repr(data))
    constants = getattr(theirs, "sendto", theirs.write).__code__.co_consts
    words = [c for c in constants if isinstance(c, str) and c.endswith(" object, not ")]
    words.append("data argument must be a bytes-like object, not ")
    raise TypeError(f"{words[0]}{type(data).__name__!r}")


def refuse(name: str, self: object, given: tuple[Any, ...], names: tuple[str, ...]) -> NoReturn:
    """Raises what CPython says of a call of asyncio's method with arguments that don't fit.

    The last of those that are given have these names.  A function of the same parameters that does
    nothing is made and called.
    """
    method = inspect.unwrap(getattr(_theirs(type(self)), name.rpartition(".")[2], refuse))
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
    # A name that is not the same each time it is compared.
    raise TypeError(f"{name}() got wrong arguments")


def fd_number(file: Any) -> int:
    """The number that an object's fileno() gives, as asyncio's selectors ask for it; for C."""
    try:
        return int(file.fileno())
    except (AttributeError, TypeError, ValueError):
        raise ValueError(f"Invalid file object: {file!r}") from None
