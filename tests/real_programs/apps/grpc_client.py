"""A client of grpc_server.py, in a process of its own because gRPC's threads do not end: PORT."""

import asyncio
import sys

import grpc

import goloop


async def requests():
    for i in range(100):
        yield b"x" * (i * 1000)


async def main():
    async with grpc.aio.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
        unary = channel.unary_unary("/test.Echo/Unary")
        assert await unary(b"hello") == b"goloop.Loop: hello", await unary(b"hello")
        answers = await asyncio.gather(*(unary(b"%d" % i) for i in range(300)))
        assert answers == [b"goloop.Loop: %d" % i for i in range(300)]
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
