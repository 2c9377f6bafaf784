"""The program `process_with_the_lock` of test_prometheus.py."""

import fcntl
import os
import sys
import threading
import warnings

import goloop.prometheus

warnings.simplefilter("ignore")
collector = goloop.prometheus.Collector(sys.argv[1], 3600)
another = os.open(os.path.join(sys.argv[1], "goloop.lock"), os.O_RDWR)
fcntl.flock(another, fcntl.LOCK_EX)
asked, flock = threading.Event(), fcntl.flock


def asks(descriptor, how):
    asked.set()
    flock(descriptor, how)


fcntl.flock = asks
scrape = threading.Thread(target=lambda: list(collector.collect()))
scrape.start()
asked.wait()
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitpid(pid, 0)
print("forked", scrape.is_alive())
os.close(another)
scrape.join()
