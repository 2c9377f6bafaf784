"""Answers each question with a million times the text of a line of stdin."""

import sys
import time

from goloop.operations import introspection

introspection.NAME = sys.argv[1]


def handle(client):
    with client:
        client.sendall(sys.stdin.readline().strip("\\n").encode() * 1_000_000)


introspection.handle = handle
introspection.introspect()
print("ready", flush=True)
while True:
    time.sleep(60)
