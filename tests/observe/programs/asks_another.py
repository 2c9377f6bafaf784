"""Asks its process 1, that is itself, by a name that another one has."""

import sys

from goloop.operations import introspection
from goloop.operations.commands import client

introspection.prefix = lambda: sys.argv[1]
print("ready", flush=True)
try:
    client.ask(1, "tasks")
except client.NoAnswer as error:
    print(error, flush=True)
