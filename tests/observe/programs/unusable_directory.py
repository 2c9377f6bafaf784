"""The program `unusable_directory` of test_prometheus.py."""

import asyncio
import os
import shutil
import sys

import goloop.prometheus

where, how = sys.argv[1:]
collector = goloop.prometheus.Collector(where, 3600)
[share] = goloop.operations.prometheus._shares.values()
if how == "removed":
    shutil.rmtree(where)
else:  # root may open a file of another user, but no folder
    os.unlink(where + "/goloop.lock")
    os.mkdir(where + "/goloop.lock")
goloop.run(asyncio.sleep(0.01))
for _ in range(2):
    (found,) = (each for each in collector.collect() if each.name == "goloop_iterations")
    print(found.samples[0].value > 0)
    share.write()
