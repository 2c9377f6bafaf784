import asyncio
import gc
import os

import goloop

loop = goloop.new_event_loop()
loop.run_until_complete(asyncio.sleep(0))
child = os.fork()
if child == 0:
    try:
        loop.call_soon(print)
    except RuntimeError as exc:
        print(exc)
    loop.close()
    del loop
    gc.collect()
    print(goloop.run(asyncio.sleep(0, "a loop of its own")), flush=True)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(loop.run_until_complete(asyncio.sleep(0, "the parent's goes on")))
loop.close()
