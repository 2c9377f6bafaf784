"""`loop.getaddrinfo()` of numeric addresses has the results of `socket.getaddrinfo()`.

report: MagicStack/uvloop#539
asyncio: right
uvloop: other answers
"""

import asyncio
import itertools
import socket

from showing import show

HOSTS = ["127.0.0.1", "::1", "fe80::1%lo", "1.2.3", "0x7f.1", "::ffff:1.2.3.4", None, b"::1"]
KINDS = [0, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW]
FLAGS = [0, socket.AI_PASSIVE, socket.AI_NUMERICHOST, socket.AI_CANONNAME]


def outcome(answer: object) -> object:
    return type(answer) if isinstance(answer, BaseException) else answer


async def main() -> str:
    loop = asyncio.get_running_loop()
    families = [0, socket.AF_INET, socket.AF_INET6]
    for host, family, kind, flags in itertools.product(HOSTS, families, KINDS, FLAGS):
        options = {"family": family, "type": kind, "flags": flags}
        [here] = await asyncio.gather(loop.getaddrinfo(host, 80, **options), return_exceptions=True)
        try:
            there: object = socket.getaddrinfo(host, 80, **options)
        except OSError as exc:
            there = exc
        if outcome(here) != outcome(there):
            return "other answers"
    return "right"


if __name__ == "__main__":
    show(main)
