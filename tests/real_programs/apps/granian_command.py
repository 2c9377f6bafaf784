"""granian's command line, whose default loop is goloop's."""

import asyncio

from granian import loops
from granian.cli import entrypoint

import goloop


@loops.register("auto")
def build_loop():
    loop = goloop.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


if __name__ == "__main__":
    entrypoint()
