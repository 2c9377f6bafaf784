"""Prefork, as with gunicorn's --preload: the master makes the collector and runs no loop.

It forks and answers by the lines of stdin; each worker serves its registry by HTTP.
"""

import asyncio
import os
import signal
import sys
import warnings

warnings.simplefilter("ignore")  # of forks beside threads
from prometheus_client import CollectorRegistry, start_http_server

import goloop
import goloop.prometheus

collector = goloop.prometheus.Collector(interval=float(sys.argv[1]))
registry = CollectorRegistry()
registry.register(collector)
assert goloop.prometheus.Collector(interval=1)._read == collector._read


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def work(commands):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: None)
    server, _ = start_http_server(0, "127.0.0.1", registry)
    say(os.getpid(), server.server_port)
    done = loop.create_future()

    def command():
        text = os.read(commands, 100)
        if not text.strip():
            done.set_result(None)
            return
        for _ in range(int(text)):
            loop.call_exception_handler({"message": "for the count"})
        say("counted")

    loop.add_reader(commands, command)
    await done


workers = {}
for line in sys.stdin:
    word, *numbers = line.split()
    if word == "fork":
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            sys.stdin = open(os.devnull)  # noqa: SIM115
            goloop.run(work(read))
            sys.exit()
        workers[pid] = write
    elif word == "count":
        os.write(workers[int(numbers[0])], numbers[1].encode())
    elif word == "end":
        os.write(workers[int(numbers[0])], b"\n")
        os.waitpid(int(numbers[0]), 0)
        say("ended")
    elif word == "kill":
        os.kill(int(numbers[0]), signal.SIGKILL)
        os.waitpid(int(numbers[0]), 0)
        say("ended")
