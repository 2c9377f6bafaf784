import sys  # noqa: F401
from dataclasses import dataclass


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


def fails(*ignored):
    raise Frozen(7)
