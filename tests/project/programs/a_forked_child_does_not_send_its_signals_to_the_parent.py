import asyncio
import os
import signal

import goloop


async def main():
    loop = asyncio.get_running_loop()
    seen = []
    loop.add_signal_handler(signal.SIGUSR1, seen.append, 1)
    child = os.fork()
    if child == 0:
        signal.raise_signal(signal.SIGUSR1)
        os._exit(0)
    os.waitpid(child, 0)
    await asyncio.sleep(0.001)
    await asyncio.sleep(0)
    print(seen)


goloop.run(main())
