"""A Celery application whose tasks run coroutines; run as a program, it is the client,
and calls the tasks that are named.

FOLDER in the environment is where messages and results lie.
"""

import asyncio
import os
import sys
from pathlib import Path

from celery import Celery
from celery.signals import worker_process_shutdown
from loop_name import loop_name

import goloop

folder = Path(os.environ["FOLDER"])
for name in ("messages", "results"):
    (folder / name).mkdir(exist_ok=True)
app = Celery("app", broker="filesystem://", backend=f"file://{folder / 'results'}")
app.conf.broker_transport_options = {
    "data_folder_in": str(folder / "messages"),
    "data_folder_out": str(folder / "messages"),
    "control_folder": str(folder),
}


async def ask():
    await asyncio.sleep(0)
    return loop_name(), id(asyncio.get_running_loop()), os.getpid()


@app.task(name="loop_of_its_own")
def loop_of_its_own():
    return goloop.run(ask())


runner = asyncio.Runner(loop_factory=goloop.new_event_loop)


@worker_process_shutdown.connect
def close_runner(**_):
    runner.close()


@app.task(name="loop_of_the_process")
def loop_of_the_process():
    return runner.run(ask())


if __name__ == "__main__":
    for name in sys.argv[1:] or ["loop_of_its_own", "loop_of_the_process"]:
        answers = [app.send_task(name) for _ in range(20)]
        print(name, [answer.get(timeout=50) for answer in answers])
