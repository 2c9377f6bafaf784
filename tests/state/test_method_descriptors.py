"""Native methods as Python sees them: the same with and without the GIL.

Without it goloop gives the descriptors another type, which takes the loop's lock (threads/guard.c).
"""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest

import goloop
from goloop import _core

NAMES = [(goloop.Loop, "call_later"), (goloop.Loop, "call_at"), (goloop.Future, "done")]


@pytest.mark.parametrize(("owner", "name"), NAMES)
def test_method_descriptor_has_names_and_docstring(owner: type, name: str) -> None:
    method: Any = getattr(owner, name)
    assert type(method).__name__ == "method_descriptor"
    assert method.__name__ == name
    assert method.__qualname__.endswith(f".{name}")
    assert method.__doc__
    assert method.__text_signature__.startswith("($self, ")
    assert next(iter(inspect.signature(method).parameters)) == "self"
    assert inspect.ismethoddescriptor(method)
    assert pickle.loads(pickle.dumps(method)) is inspect.getattr_static(method.__objclass__, name)


def test_a_bound_method_is_the_methods_and_the_objects() -> None:
    loop = goloop.new_event_loop()
    try:
        bound: Any = loop.call_later
        assert bound.__self__ is loop
        assert bound.__name__ == "call_later"
        assert bound.__doc__ == _core.Loop.call_later.__doc__
        assert list(inspect.signature(bound).parameters)[:2] == ["delay", "callback"]
        assert bound == loop.call_later
        future = loop.create_future()
        done = future.done
        assert not done()
        future.set_result(None)
        assert done()
    finally:
        loop.close()


def test_wrong_call_raises_the_errors_of_builtin_methods() -> None:
    loop = goloop.new_event_loop()
    future: Any = loop.create_future()
    done: Any = type(future).done
    with pytest.raises(TypeError, match=r"unbound method Future\.done\(\) needs an argument"):
        done()
    with pytest.raises(TypeError, match=r"'done' for .* doesn't apply to a 'int' object"):
        done(1)
    with pytest.raises(TypeError, match=r"'done' for .* doesn't apply to a 'int' object"):
        done.__get__(1)
    with pytest.raises(TypeError, match=r"Future\.done\(\) takes no arguments \(1 given\)"):
        future.done(1)
    with pytest.raises(TypeError, match=r"Future\.done\(\) takes no keyword arguments"):
        future.done(x=1)
    loop.close()
