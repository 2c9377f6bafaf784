import asyncio
import os

import goloop

goloop.introspect()


async def main():
    asyncio.get_running_loop().set_slow_limit(1e-9)
    print(os.getpid(), flush=True)
    await asyncio.to_thread(input)


goloop.run(main())
