"""hypercorn in two processes that share a port: PORT."""

import multiprocessing
import signal
import socket
import sys

from asgi_app import app
from hypercorn.asyncio import serve
from hypercorn.config import Config

import goloop


def work(sock):
    config = Config()
    config.bind = [f"fd://{sock.detach()}"]
    goloop.run(serve(app, config))


if __name__ == "__main__":
    with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as sock:
        workers = [multiprocessing.Process(target=work, args=[sock]) for _ in range(2)]
        for worker in workers:
            worker.start()
        signal.signal(signal.SIGTERM, lambda *_: [worker.terminate() for worker in workers])
        for worker in workers:
            worker.join()
