"""The program `fork_during_a_read` of test_prometheus.py."""

import os
import signal
import threading
import warnings

warnings.simplefilter("ignore")
import goloop
from goloop._internal.observe import metrics

goloop.metrics()
inside, leave = threading.Event(), threading.Event()


def ask():
    with metrics._lock:
        inside.set()
        leave.wait()


thread = threading.Thread(target=ask)
thread.start()
inside.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    goloop.metrics()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
leave.set()
thread.join()
goloop.metrics()
