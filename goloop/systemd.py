"""Messages to systemd: the service is ready, is alive, or stops.

    async with goloop.systemd.watchdog():
        await server.serve_forever()

systemd restarts a unit with `WatchdogSec=` if its messages stop. The loop itself sends the
messages, so they stop while a callback blocks the loop. If systemd has not started the program
(`NOTIFY_SOCKET` is not set), nothing is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ("notify", "watchdog")

_logger = logging.getLogger("goloop")

# The service's main process: its forked children send nothing.
_pid = os.getpid()

# systemd reads its socket continuously; a loop waits for it no longer than this, in seconds.
_SECONDS = 1.0


def notify(state: str) -> bool:
    """Send a message to systemd, as sd_notify(3) does.

    Since 0.3.0.

    Args:
        state: One assignment or several, separated by line feeds: `READY=1`, `STATUS=Loading`.

    Returns:
        True if it was sent. It is not sent if `NOTIFY_SOCKET` is not set, in a forked child, and in
        a process other than `WATCHDOG_PID`. A failure is logged as a warning.
    """
    return _send(state, _SECONDS)


def _send(state: str, patience: float) -> bool:
    """Send a message to systemd, waiting at most `patience` seconds; return true if it was sent.

    A failure is logged as a warning, except a full queue of systemd's socket.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address or os.getpid() != _pid or os.environ.get("WATCHDOG_PID") not in _OWN_PIDS:
        return False
    if address[0] == "@":
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(patience)
            sock.sendto(state.encode(errors="surrogateescape"), address)
    except BlockingIOError:
        return False  # the socket's queue is full of messages
    except (OSError, UnicodeError) as error:  # UnicodeError: a surrogate without a byte
        _logger.warning("cannot send %r to systemd: %s", state, error)
        return False
    return True


_OWN_PIDS = (None, "", str(_pid))


class _LoopState:
    """The watchdog state of one loop: whether it must run before the next message is sent."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        """Begin in the state in which the loop must run."""
        self.waits = True

    def beat(self) -> None:
        """Record that the loop runs; the last loop that does so in a period sends the message."""
        self.waits = False
        every = list(_loop_states)  # list() is atomic without a GIL, too, and tuple() is not
        if not any(each.waits for each in every):
            for each in every:
                each.waits = True
            _send("WATCHDOG=1", 0)


# The states of all loops. A thread adds and removes only its own, so no lock is needed.
_loop_states: set[_LoopState] = set()


def _period() -> float:
    """Return the seconds between two beats of a loop, or 0.0 if systemd does not watch.

    Logs a warning if WATCHDOG_USEC is not a number.
    """
    try:
        # A quarter of the timeout. sd_watchdog_enabled(3) recommends half of it, but with several
        # loops the message is sent by the last one, up to a period later.
        return max(0.0, int(os.environ.get("WATCHDOG_USEC", "0")) / 4e6)
    except (ValueError, OverflowError):
        _logger.warning("WATCHDOG_USEC=%s is not a number", os.environ["WATCHDOG_USEC"])
        return 0.0


@contextlib.asynccontextmanager
async def watchdog(*, ready: bool = True) -> AsyncIterator[None]:
    """Notify systemd that the service is ready, that the running loop is alive, and that it stops.

    An `async with` block sends `READY=1` at its begin (for `Type=notify`) and `STOPPING=1` at its
    end. In between the loop sends `WATCHDOG=1`, four times within the timeout of `WatchdogSec=`,
    which is in `WATCHDOG_USEC`. While a callback blocks the loop nothing is sent, and systemd ends
    the service (`SIGABRT`) and restarts it.

    If several loops of a program have such a block, `WATCHDOG=1` is sent only if all these loops
    are alive. `READY=1` is sent at the begin of each block, `STOPPING=1` at the end of the last.

    Any asyncio loop can be used. Without systemd the block does nothing, nor in a forked child.
    Since 0.3.0.

    Args:
        ready: Send `READY=1`. If false, the program sends it itself, by `notify()`.
    """
    loop = asyncio.get_running_loop()
    beat = _LoopState()
    period = _period()
    timer: asyncio.TimerHandle | None = None

    def beat_periodically() -> None:
        """Record that the loop runs, and schedule the next call."""
        nonlocal timer
        timer = loop.call_later(period, beat_periodically)
        beat.beat()

    if ready:
        notify("READY=1")
    _loop_states.add(beat)
    if period:
        beat_periodically()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        _loop_states.discard(beat)
        if not _loop_states:
            notify("STOPPING=1")
