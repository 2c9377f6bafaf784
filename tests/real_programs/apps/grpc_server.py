"""A grpc.aio service whose messages are plain bytes: PORT."""

import asyncio
import signal
import sys

import grpc
from loop_name import loop_name

import goloop


async def unary(request, context):
    return f"{loop_name()}: ".encode() + request


async def stream(requests, context):
    async for request in requests:
        yield request


async def refuse(request, context):
    await context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")


async def main():
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers(
        [
            grpc.method_handlers_generic_handler(
                "test.Echo",
                {
                    "Unary": grpc.unary_unary_rpc_method_handler(unary),
                    "Stream": grpc.stream_stream_rpc_method_handler(stream),
                    "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
                },
            )
        ]
    )
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    await server.start()
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await stopping.wait()
    await server.stop(5)


goloop.run(main())
