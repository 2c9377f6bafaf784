"""A Faust application: an agent, and a command that runs on the application's loop."""

import asyncio

import faust
from loop_name import loop_name

app = faust.App("which", broker="kafka://127.0.0.1:1", store="memory://")
numbers = app.topic("numbers", value_type=int)


@app.agent(numbers)
async def doubles(stream):
    async for number in stream:
        await asyncio.sleep(0)
        yield loop_name(), 2 * number


@app.command()
async def which_loop(self):
    """Print the loop that the application's services have."""
    print("loop:", loop_name())


async def main():
    """Gives the agent numbers, without a broker."""
    async with doubles.test_context() as agent:
        for number in range(20):
            event = await agent.put(number)
            print("result:", *agent.results[event.message.offset])


if __name__ == "__main__":
    import goloop

    goloop.run(main())
