"""A window of Qt that makes 1,000 requests and stays responsive: `python examples/guest_qt.py`.

It needs PySide6 or PyQt6.  The bar at the top moves by Qt's own timer; it would stop if the window
were blocked.  The requests go to a server in the same loop, over real connections.
"""

import asyncio
import contextlib
import sys

try:
    from PySide6 import QtCore, QtWidgets
except ImportError:
    from PyQt6 import QtCore, QtWidgets

import goloop.guest.qt

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


class Window(QtWidgets.QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.frames = 0
        self.setWindowTitle("goloop in Qt")
        self.clock = QtWidgets.QProgressBar(maximum=100, textVisible=False)
        self.bar = QtWidgets.QProgressBar(maximum=REQUESTS, textVisible=False)
        self.label = QtWidgets.QLabel("Ready")
        self.button = QtWidgets.QPushButton(f"{REQUESTS:,} requests")
        layout = QtWidgets.QVBoxLayout(self)
        for widget in (self.clock, self.bar, self.label, self.button):
            layout.addWidget(widget)
        self.resize(440, 150)
        self.asked = asyncio.Event()
        self.button.clicked.connect(self.clicked)
        self.timer = QtCore.QTimer(self)
        self.timer.timeout.connect(self.move_on)
        self.timer.start(20)

    def move_on(self) -> None:
        """Move the bar; Qt's own timer calls this 50 times a second."""
        self.frames += 1
        self.clock.setValue(2 * self.frames % 100)

    def clicked(self) -> None:
        """Start the requests; Qt calls this between two iterations of the loop."""
        self.asked.set()

    async def main(self, once: bool) -> int:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        while True:
            await self.asked.wait()
            self.asked.clear()
            self.button.setEnabled(False)
            frames = self.frames
            answers = await self.get_all(port)
            frames = self.frames - frames
            text = f"{answers:,} answers, and the window has drawn {frames} times"
            self.label.setText(text)
            self.button.setEnabled(True)
            if once:
                print(text)
                return frames

    async def get_all(self, port: int) -> int:
        some = asyncio.Semaphore(AT_ONCE)
        answers = 0

        async def one() -> None:
            nonlocal answers
            async with some:
                answer = await get(port)
            answers += answer.endswith(b"hello")
            self.bar.setValue(answers)
            self.label.setText(f"{answers:,} answers")

        async with asyncio.TaskGroup() as group:
            for _ in range(REQUESTS):
                group.create_task(one())
        return answers


def main() -> None:
    app = QtWidgets.QApplication(sys.argv)
    window = Window()
    window.show()
    once = "--once" in sys.argv
    if once:
        window.button.click()
    with contextlib.suppress(asyncio.CancelledError):  # the window was closed
        goloop.guest.qt.run(window.main(once), app)


if __name__ == "__main__":
    main()
