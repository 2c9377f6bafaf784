"""What the applications here say of the loop that runs them."""

import asyncio


def loop_name():
    kind = type(asyncio.get_running_loop())
    return f"{kind.__module__}.{kind.__qualname__}"
