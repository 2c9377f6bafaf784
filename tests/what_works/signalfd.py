"""A blocked signal is received by `sigwait()` or signalfd, after a name look-up.

report: none
asyncio: dies of SIGUSR1
uvloop: dies of SIGUSR1
process: its own
"""

import asyncio
import os
import signal

from showing import show


async def main() -> str:
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    os.kill(os.getpid(), signal.SIGUSR1)
    return "right" if signal.sigwait([signal.SIGUSR1]) == signal.SIGUSR1 else "another signal"


if __name__ == "__main__":
    show(main)
