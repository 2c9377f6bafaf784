"""The name of the running loop, for the applications here."""

import asyncio


def loop_name():
    kind = type(asyncio.get_running_loop())
    return f"{kind.__module__}.{kind.__qualname__}"
