"""Two workers of Ray with actors, and Serve: prints which loops run in each process.

Arguments: a folder for Ray's files, whose path must be short, and Serve's port.
"""

import asyncio
import gc
import json
import os
import sys
import urllib.request

import ray
from ray import serve

import goloop.ray


def loops():
    """Return the classes of the loops that run in this process, under any caller."""
    gc.unfreeze()  # Serve hides the first objects of its replicas from the collector
    found = [each for each in gc.get_objects() if issubclass(type(each), asyncio.AbstractEventLoop)]
    return sorted({name(each) for each in found if each.is_running()})


def name(loop):
    return f"{type(loop).__module__}.{type(loop).__qualname__}"


class Actor:
    async def loop(self):
        await asyncio.sleep(0.01)
        return name(asyncio.get_running_loop()), os.getpid()

    async def numbers(self):
        for number in range(3):
            await asyncio.sleep(0)
            yield number


def made_in_a_task():
    loop = asyncio.new_event_loop()
    loop.close()
    return name(loop)


class Hello:
    async def __call__(self, request):
        body = await request.body()
        return {"loop": name(asyncio.get_running_loop()), "pid": os.getpid(), "got": len(body)}


def say(what, value):
    print(json.dumps([what, value]), flush=True)


def main(folder, port):
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        _temp_dir=folder,
        runtime_env={"worker_process_setup_hook": "goloop.ray.setup"},
    )
    actors = [ray.remote(Actor).remote() for _ in range(2)]
    say("actors", ray.get([actor.loop.remote() for actor in actors]))
    say("numbers", [ray.get(each) for each in actors[0].numbers.remote()])
    say("task", ray.get(ray.remote(made_in_a_task).remote()))
    serve.start(http_options={"host": "127.0.0.1", "port": int(port), "location": "HeadOnly"})
    serve.run(serve.deployment(Hello).bind())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", b"x" * 100_000) as answer:
        say("serve", json.load(answer))
    for each in ray.util.list_named_actors(all_namespaces=True):
        actor = ray.get_actor(each["name"], namespace=each["namespace"])
        say(each["name"], ray.get(actor.__ray_call__.remote(lambda _: loops())))
    say("driver", name(asyncio.new_event_loop()))
    serve.shutdown()
    ray.shutdown()


if __name__ == "__main__":
    goloop.ray.setup()
    main(*sys.argv[1:3])
