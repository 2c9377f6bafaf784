"""Detects a frequent mistake: the caller passes a coroutine instead of a function."""

from __future__ import annotations

from types import CoroutineType
from typing import Any


def refuse_coroutine(passed: Any, call: str) -> None:
    """Raise TypeError if `passed` is a coroutine, after closing it to avoid a second warning."""
    if isinstance(passed, CoroutineType):
        passed.close()
        name = passed.__name__
        raise TypeError(f"pass the function: {call}({name}), not {call}({name}())")
