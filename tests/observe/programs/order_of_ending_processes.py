"""The program `order_of_ending_processes` of test_prometheus.py."""

import subprocess
import sys
import warnings

import goloop.prometheus  # noqa: F401
from goloop.operations import prometheus
from goloop.operations.prometheus import Metrics, _in_nanoseconds, _to_json, proc_stat

warnings.simplefilter("ignore")
share, sleepers = prometheus._SharedDirectory(prometheus.Path(sys.argv[1]), 3600), []


def idle():
    return share.of_all_processes().time_idle


for seconds in (100000.1, 100000.2, 100000.3):
    sleepers.append(subprocess.Popen(["sleep", "1000"]))
    pid = sleepers[-1].pid
    figures = _in_nanoseconds(Metrics(time_idle=seconds, iterations=5))
    share._store(f"goloop_{pid}_{proc_stat.started(pid)}.json", _to_json(figures))
found = [idle()]
for sleeper in sleepers[::-1]:
    sleeper.kill()
    sleeper.wait()
    found.append(idle())
print(set(found))
