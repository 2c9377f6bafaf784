import os

import goloop


def threads():
    return len(os.listdir("/proc/self/task"))


print(threads(), goloop.diagnostics()["library"]["mode"])
loop = goloop.new_event_loop()
print(threads() > 1, goloop.diagnostics()["library"]["mode"])
loop.close()
