"""Loops of several threads start children at the same time.

report: MagicStack/uvloop#508
asyncio: right
uvloop: RuntimeError
"""

import asyncio
import threading

from showing import new_loop, show


async def main() -> str:
    together = threading.Barrier(10)

    async def spawns() -> str:
        for _ in range(3):
            child = await asyncio.create_subprocess_exec("true")
            await child.wait()
        return "right"

    def runs() -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.get_loop()
            together.wait()
            try:
                words.append(runner.run(spawns()))
            except RuntimeError as exc:
                words.append(type(exc).__name__)

    words: list[str] = []
    threads = [threading.Thread(target=runs) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    return max(words, key=lambda word: word != "right")


if __name__ == "__main__":
    show(main)
