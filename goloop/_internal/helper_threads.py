"""Starts goloop's own Python threads, which take no signals.

The kernel may deliver a signal of the process to any thread that does not block it. A program that
blocks a signal in its threads, to collect it by `sigwait()` or a signalfd or to keep a handler out
of a section, does not know goloop's threads. So these block all signals from their first
instruction on. The signals of faults are no exception: a thread's own fault ends the process also
if its signal is blocked, but without a handler, such as faulthandler's.
"""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


def start_helper_thread(start: Callable[[], object]) -> None:
    """Call `start()`, which starts a thread, with all signals blocked; the thread inherits that.

    A thread that blocked signals itself could not do so before it gets the GIL.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        # Within `try`: it runs Python's handlers of earlier signals, which may raise exceptions.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
