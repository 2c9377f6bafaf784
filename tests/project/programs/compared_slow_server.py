import asyncio
import time


class Slow(asyncio.SelectorEventLoop):
    def _run_once(self):
        time.sleep(0.01)
        super()._run_once()


def broken():
    raise RuntimeError("no loop today")
