"""A round of asyncio's features, on the running loop, for programs that patched asyncio before."""

import asyncio

from loop_name import loop_name


async def _give(value):
    await asyncio.sleep(0.001)
    return value


async def _echo(reader, writer):
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def asyncio_works():
    """Use each feature once; return the name of the running loop."""
    async with asyncio.timeout(20):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_give(number)) for number in range(5)]
        assert [task.result() for task in tasks] == list(range(5))
        assert await asyncio.gather(_give(1), _give(2)) == [1, 2]
        assert await asyncio.wait_for(_give(3), 10) == 3
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.001)
        except TimeoutError:
            pass
        else:
            raise AssertionError("wait_for has no limit")
        assert asyncio.current_task() in asyncio.all_tasks()
        server = await asyncio.start_server(_echo, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(b"hello\n")
        assert await reader.readline() == b"hello\n"
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        child = await asyncio.create_subprocess_exec("echo", "x", stdout=asyncio.subprocess.PIPE)
        assert (await child.communicate())[0] == b"x\n"
        assert await asyncio.to_thread(lambda: 4) == 4
    return loop_name()
