"""grpc.aio: unary calls, streams, errors, many at once."""

from __future__ import annotations

import pytest

from real_programs.programs import APPS, LOOP, TIME_LIMIT, Programs, free_port, needs

needs("grpc")

pytestmark = pytest.mark.real

# gRPC starts threads that it never ends, so its client has a process of its own too.
CLIENT = """
import asyncio, sys, grpc, goloop

async def main():
    async with grpc.aio.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
        unary = channel.unary_unary("/test.Echo/Unary")
        assert await unary(b"hello") == b"LOOP: hello", await unary(b"hello")
        answers = await asyncio.gather(*(unary(b"%d" % i) for i in range(300)))
        assert answers == [b"LOOP: %d" % i for i in range(300)]

        async def requests():
            for i in range(100):
                yield b"x" * (i * 1000)

        stream = channel.stream_stream("/test.Echo/Stream")(requests())
        assert [len(each) async for each in stream] == [i * 1000 for i in range(100)]
        try:
            await channel.unary_unary("/test.Echo/Refuse")(b"")
        except grpc.aio.AioRpcError as error:
            assert error.code() == grpc.StatusCode.NOT_FOUND
        else:
            raise AssertionError("not refused")

goloop.run(main())
print("done")
"""


def test_grpc_answers_its_client(programs: Programs) -> None:
    port = free_port()
    server = programs.python(APPS / "grpc_server.py", str(port), port=port)
    client = programs.python("-c", CLIENT.replace("LOOP", LOOP), str(port))
    client.process.wait(TIME_LIMIT)
    assert client.process.returncode == 0, client.output
    assert "done" in client.output
    server.end()
