"""Messages to systemd: a service is ready, is alive, and stops.

    async with goloop.systemd.watchdog():
        await server.serve_forever()

A unit with `WatchdogSec=` is restarted where its messages stay away.  These come from the loop
itself, so they stay away while a callback blocks it.  Where systemd has not started the program
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

# The service's own process: its forked children do not speak for it.
_pid = os.getpid()

# systemd reads its socket all the time; a loop does not wait for it longer than this.
_SECONDS = 1.0


def notify(state: str) -> bool:
    """Send systemd a message, as sd_notify(3) does.

    Since 0.3.0.

    Args:
        state: One assignment or several, separated by line feeds: `READY=1`, `STATUS=Loading`.

    Returns:
        Whether it was sent.  It is not where `NOTIFY_SOCKET` is not set, in a forked child, and in
        another process than `WATCHDOG_PID` names.  A failure is logged as a warning.
    """
    return _send(state, _SECONDS)


def _send(state: str, patience: float) -> bool:
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address or os.getpid() != _pid or os.environ.get("WATCHDOG_PID") not in _OURS:
        return False
    if address[0] == "@":
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(patience)
            sock.sendto(state.encode(errors="surrogateescape"), address)
    except BlockingIOError:
        return False  # many messages wait there already
    except (OSError, UnicodeError) as error:  # a surrogate that stands for no byte
        _logger.warning("systemd can't be told %r: %s", state, error)
        return False
    return True


_OURS = (None, "", str(_pid))


class _Beat:
    """A loop that is watched: whether it has to go round before the next message."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        self.waits = True

    def beat(self) -> None:
        """The loop has gone round; the last one of all sends the message."""
        self.waits = False
        every = list(_beats)  # atomic without a GIL too, which tuple() is not
        if not any(each.waits for each in every):
            for each in every:
                each.waits = True
            _send("WATCHDOG=1", 0)


# Of all loops.  A thread adds and takes away only its own: no lock is needed.
_beats: set[_Beat] = set()


def _period() -> float:
    """Seconds between two looks at a loop, or 0.0 where systemd does not watch."""
    try:
        # Several loops have to come, each at its own time: twice as often as sd_watchdog_enabled(3)
        # asks for, they all have come in half the time.
        return max(0.0, int(os.environ.get("WATCHDOG_USEC", "0")) / 4e6)
    except (ValueError, OverflowError):
        _logger.warning("WATCHDOG_USEC=%s is no number", os.environ["WATCHDOG_USEC"])
        return 0.0


@contextlib.asynccontextmanager
async def watchdog(*, ready: bool = True) -> AsyncIterator[None]:
    """Tell systemd that the service is ready, that the running loop goes on, and that it stops.

    At its beginning an `async with` block sends `READY=1` (for `Type=notify`), at its end
    `STOPPING=1`.  In between the loop sends `WATCHDOG=1`, four times in the time that
    `WatchdogSec=` names, which is in `WATCHDOG_USEC`.  While a callback blocks the loop nothing is
    sent, and systemd ends the service (`SIGABRT`) and starts it again.

    In a program with several loops each that has such a block must go on: one that is blocked keeps
    the message away.  `READY=1` is sent at the beginning of each, `STOPPING=1` at the end of the
    last.

    Any loop of asyncio's kind will do.  Without systemd it does nothing, nor in a forked child.
    Since 0.3.0.

    Args:
        ready: Whether to send `READY=1`.  Without it the program does so itself, by `notify()`.
    """
    loop = asyncio.get_running_loop()
    beat = _Beat()
    period = _period()
    timer: asyncio.TimerHandle | None = None

    def goes_on() -> None:
        nonlocal timer
        timer = loop.call_later(period, goes_on)
        beat.beat()

    if ready:
        notify("READY=1")
    _beats.add(beat)
    if period:
        goes_on()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        _beats.discard(beat)
        if not _beats:
            notify("STOPPING=1")
