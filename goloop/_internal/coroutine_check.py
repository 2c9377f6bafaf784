"""What callers pass by mistake: the coroutine instead of the function."""

from __future__ import annotations

from types import CoroutineType
from typing import Any


def refuse_coroutine(passed: Any, call: str) -> None:
    """TypeError where `passed` is a coroutine, which is closed, so that it is not reported, too."""
    if isinstance(passed, CoroutineType):
        passed.close()
        name = passed.__name__
        raise TypeError(f"pass the function: {call}({name}), not {call}({name}())")
