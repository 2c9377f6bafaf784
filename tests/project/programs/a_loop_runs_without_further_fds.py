import asyncio
import os
import resource

import goloop

loop = goloop.new_event_loop()
resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), 99))
taken = []
try:
    while True:
        taken.append(os.dup(0))
except OSError:
    pass
print(loop.run_until_complete(asyncio.sleep(0.001, "ran")))
loop.close()
