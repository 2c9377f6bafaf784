"""A Faust application: an agent, and a command that runs on the application's loop."""

import asyncio

import faust

app = faust.App("which", broker="kafka://127.0.0.1:1", store="memory://")
numbers = app.topic("numbers", value_type=int)


def loop():
    kind = type(asyncio.get_running_loop())
    return f"{kind.__module__}.{kind.__qualname__}"


@app.agent(numbers)
async def doubles(stream):
    async for number in stream:
        await asyncio.sleep(0)
        yield loop(), 2 * number


@app.command()
async def which_loop(self):
    """Print the loop that the application's services have."""
    print("loop:", loop())


async def main():
    """Gives the agent numbers, without a broker."""
    async with doubles.test_context() as agent:
        for number in range(20):
            event = await agent.put(number)
            print("result:", *agent.results[event.message.offset])


if __name__ == "__main__":
    import goloop

    goloop.run(main())
