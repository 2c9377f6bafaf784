"""System calls of C's on connections (pybridge/core/fds/calls.c) fail."""

from __future__ import annotations

from goloop.testing.simulated import kernel

CALLS = ("recv", "send", "sendto", "shutdown", "fcntl", "dup")


def fail_call(call: str, number: int, after: int = 0, times: int = 1) -> None:
    """Let the next `times` calls fail with an errno, after `after` successful ones; 0 ends it."""
    kernel.request(kernel.Request.FAIL, 0, CALLS.index(call), number, after, times)
