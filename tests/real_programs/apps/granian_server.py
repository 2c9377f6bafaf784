"""granian, run as a library: PORT.  Its workers import this module too."""

import asyncio
import sys

from granian import Granian, loops

import goloop


@loops.register("goloop")
def build_loop():
    loop = goloop.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


if __name__ == "__main__":
    server = Granian(
        "asgi_app:app", port=int(sys.argv[1]), interface="asgi", workers=2, loop="goloop"
    )
    server.serve()
