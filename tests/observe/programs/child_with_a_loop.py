import asyncio
import os
import sys

import goloop

goloop.introspect()


async def main():
    os.write(1, b"%d\n" % os.getpid())
    await asyncio.to_thread(sys.stdin.read)


goloop.run(main())
