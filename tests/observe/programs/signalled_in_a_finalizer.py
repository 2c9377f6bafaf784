"""An exporter in which SIGTERM arrives in a finalizer, of processes with this socket name."""

import os
import signal
import sys

from goloop.operations import introspection
from goloop.operations.commands import export

introspection.NAME = sys.argv[1]


class Signals:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass


def verify_request(self, request, address):
    Signals()
    return True


export.Server.verify_request = verify_request
sys.exit(export.main(["--listen", "127.0.0.1:0"]))
