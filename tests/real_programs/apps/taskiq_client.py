"""A client of the worker taskiq_app.py."""

from taskiq_app import ask, broker

import goloop


async def main():
    await broker.startup()
    tasks = [await ask.kiq(number) for number in range(50)]
    answers = [(await task.wait_result(timeout=30)).return_value for task in tasks]
    expected = [("goloop.Loop", number) for number in range(50)]
    assert [tuple(each) for each in answers] == expected, answers
    await broker.shutdown()
    print("done", flush=True)


goloop.run(main())
