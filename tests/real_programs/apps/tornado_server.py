"""A tornado application: PORT."""

import asyncio
import signal
import sys

import tornado.httpclient
import tornado.ioloop
import tornado.web
import tornado.websocket
from loop_name import loop_name

import goloop


class Index(tornado.web.RequestHandler):
    async def get(self):
        # Through tornado's own timers and callbacks too.
        done = asyncio.Event()
        loop = tornado.ioloop.IOLoop.current()
        loop.call_later(0.01, lambda: loop.add_callback(done.set))
        await done.wait()
        self.write({"loop": loop_name()})

    def post(self):
        self.write(self.request.body)


class Proxy(tornado.web.RequestHandler):
    async def get(self):
        client = tornado.httpclient.AsyncHTTPClient()
        answer = await client.fetch(f"http://127.0.0.1:{sys.argv[1]}/")
        self.write(answer.body)


class Socket(tornado.websocket.WebSocketHandler):
    async def on_message(self, message):
        await self.write_message(f"{loop_name()}: {message}")


async def main():
    app = tornado.web.Application([("/", Index), ("/proxy", Proxy), ("/ws", Socket)])
    server = app.listen(int(sys.argv[1]), "127.0.0.1")
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    await stopping.wait()
    server.stop()
    await server.close_all_connections()


goloop.run(main())
