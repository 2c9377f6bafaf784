"""A window of Tk that makes 1,000 requests and stays responsive: `python examples/guest_tk.py`.

The bar at the top moves by Tk's own timer; it would stop if the window were blocked.
The requests go to a server in the same loop, over real connections.
"""

import asyncio
import contextlib
import sys
import tkinter
from tkinter import ttk

import goloop.guest.tk

REQUESTS = 1_000
AT_ONCE = 50


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.sleep(0.02)  # for example a database query
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello")
    writer.close()


async def get(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return answer


class Window:
    def __init__(self, root: tkinter.Tk) -> None:
        self.root = root
        self.frames = 0
        root.title("goloop in Tk")
        self.clock = ttk.Progressbar(root, length=420, mode="indeterminate")
        self.clock.pack(padx=16, pady=(16, 8))
        self.bar = ttk.Progressbar(root, length=420, maximum=REQUESTS)
        self.bar.pack(padx=16)
        self.label = ttk.Label(root, text="Ready")
        self.label.pack(pady=8)
        self.button = ttk.Button(root, text=f"{REQUESTS:,} requests", command=self.clicked)
        self.button.pack(pady=(0, 16))
        self.asked = asyncio.Event()
        self.move()

    def move(self) -> None:
        """Move the bar; Tk's own timer calls this 50 times a second."""
        self.frames += 1
        self.clock.step(2)
        self.root.after(20, self.move)

    def clicked(self) -> None:
        """Start the requests; Tk calls this between two iterations of the loop."""
        self.asked.set()

    async def main(self, once: bool) -> int:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        while True:
            await self.asked.wait()
            self.asked.clear()
            self.button.state(["disabled"])
            frames = self.frames
            answers = await self.get_all(port)
            frames = self.frames - frames
            self.label["text"] = f"{answers:,} answers, and the window has drawn {frames} times"
            self.button.state(["!disabled"])
            if once:
                print(self.label["text"])
                return frames

    async def get_all(self, port: int) -> int:
        some = asyncio.Semaphore(AT_ONCE)
        answers = 0

        async def one() -> None:
            nonlocal answers
            async with some:
                answer = await get(port)
            answers += answer.endswith(b"hello")
            self.bar["value"] = answers
            self.label["text"] = f"{answers:,} answers"

        async with asyncio.TaskGroup() as group:
            for _ in range(REQUESTS):
                group.create_task(one())
        return answers


def main() -> None:
    root = tkinter.Tk()
    window = Window(root)
    once = "--once" in sys.argv
    if once:
        window.button.invoke()
    with contextlib.suppress(asyncio.CancelledError):  # the window was closed
        goloop.guest.tk.run(window.main(once), root)


if __name__ == "__main__":
    main()
