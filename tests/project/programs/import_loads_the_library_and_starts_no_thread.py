import os

import goloop

with open("/proc/self/maps") as file:
    maps = file.read()
assert "goloop/_core" in maps
assert "libgoloop" in maps
assert len(os.listdir("/proc/self/task")) == 1
goloop.new_event_loop().close()
assert len(os.listdir("/proc/self/task")) > 1
