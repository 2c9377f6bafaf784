"""The program `fork_beside_a_writer` of test_prometheus.py."""

import os
import tempfile
import threading
import time
import warnings

warnings.simplefilter("ignore")
import goloop.prometheus

held = threading.Lock()
taken = threading.Event()


def metrics():
    with held:
        taken.set()
        time.sleep(0.05)
    return goloop.metrics()


goloop.operations.prometheus.metrics = metrics
collector = goloop.prometheus.Collector(tempfile.mkdtemp(), interval=0.001)
for _ in range(5):
    taken.clear()
    taken.wait()  # the thread holds the lock
    pid = os.fork()
    if pid == 0:
        free = held.acquire(timeout=30)
        if free:
            held.release()
            list(collector.collect())
        os._exit(0 if free else 1)
    assert os.waitpid(pid, 0)[1] == 0
