"""The program `forked_child` of test_metrics.py."""

import asyncio
import os
import warnings

warnings.simplefilter("ignore")
import goloop

goloop.run(asyncio.sleep(0))
kept = goloop.new_event_loop()
kept.run_until_complete(asyncio.sleep(0))
import gc

for _ in range(5):
    gc.collect()
gc.disable()
assert goloop.metrics().iterations > 0
before = goloop.metrics().gc_time
assert before > 0
pid = os.fork()
if pid == 0:
    figures = goloop.metrics()
    assert figures.gc_time < before, figures.gc_time
    assert (figures.loops, figures.iterations) == (0, 0), figures
    goloop.run(asyncio.sleep(0))
    assert 0 < goloop.metrics().iterations < 10
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
kept.close()
print("well")
