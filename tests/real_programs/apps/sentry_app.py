"""Tasks with Sentry's integration of asyncio; prints the items that it would send."""

import asyncio
import json

import sentry_sdk
from loop_name import loop_name
from sentry_sdk.integrations.asyncio import AsyncioIntegration
from sentry_sdk.transport import Transport

import goloop


class Kept(Transport):
    items = []

    def capture_envelope(self, envelope):
        self.items += [item.payload.json for item in envelope.items]


async def fails():
    sentry_sdk.set_tag("within", "fails")
    await asyncio.sleep(0)
    raise KeyError("lost")


async def works():
    await asyncio.sleep(0)
    return 1


def callback_fails():
    return 1 / 0


async def main():
    loop = asyncio.get_running_loop()
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1",
        transport=Kept,
        traces_sample_rate=1.0,
        integrations=[AsyncioIntegration()],
    )
    with sentry_sdk.start_transaction(name="request", op="test"):
        assert await asyncio.create_task(works()) == 1
        async with asyncio.TaskGroup() as group:
            group.create_task(works())
        await asyncio.gather(fails(), return_exceptions=True)
    # The loop's exception handler logs it, and Sentry takes the log record.
    loop.call_soon(callback_fails)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return loop_name()


loop = goloop.run(main())
print("told:" + json.dumps({"loop": loop, "items": Kept.items}, default=str))
