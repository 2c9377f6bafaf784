import asyncio

import goloop


async def main():
    return type(asyncio.get_running_loop())


expected = asyncio.SelectorEventLoop
assert goloop.run(main()) is expected
assert goloop.Loop is expected and goloop.Task is asyncio.Task and goloop.Future is asyncio.Future
loop = goloop.new_event_loop()
assert type(loop) is expected
loop.close()
goloop.install()
assert asyncio.run(main()) is expected
