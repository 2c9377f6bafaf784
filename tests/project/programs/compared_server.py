import asyncio
import os
import ssl
import sys


class Http(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        status = 404 if b" /none " in data else 200
        self.transport.write(b"HTTP/1.1 %d OK\r\nContent-Length: 2\r\n\r\nok" % status)


class Echo(Http):
    def data_received(self, data):
        self.transport.write(data)


async def main():
    with open("pids", "a") as file:
        print(os.getpid(), file=file)
    protocol = Echo if "echo" in sys.argv else Http
    port = int(sys.argv[-1]) if sys.argv[-1].isdigit() else int(os.environ["PORT"])
    tls = None
    if "CERTIFICATE" in os.environ:
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(os.environ["CERTIFICATE"], os.environ["KEY"])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", port, ssl=tls)
    await server.serve_forever()


asyncio.run(main())
