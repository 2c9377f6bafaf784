"""The program of shown_by_top.py.  Once it has read a line it answers as the monitor would."""

import base64
import sys
import threading

import shown_by_top

import goloop
from goloop import _core
from goloop._internal.observe import metric_registry
from goloop.operations import introspection

NAMES = ("time_busy", "time_idle", "turns", "bytes_sent", "iteration_time")
whole = introspection.respond
held = threading.Event()


def respond(question):
    if not held.is_set():
        return whole(question)
    [loop] = _core._open_loops()
    raw = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in metric_registry.unpack_metrics(loop._metrics()).items()
        if name in NAMES
    }
    stack = [["slow", "/app/views.py", 12], ["match\x1b[2J", "/usr/lib/re.py", 7]]
    loops = [{"metrics": raw, "blocked_for": 50.0, "stack": stack}]
    return {"protocol": 1, "partial": True, "loops": loops}


introspection.respond = respond


def watch():
    sys.stdin.readline()
    held.set()


threading.Thread(target=watch, daemon=True).start()
goloop.run(shown_by_top.main())
