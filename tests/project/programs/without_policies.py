import asyncio.unix_events

del asyncio.unix_events._DefaultEventLoopPolicy
import goloop
from goloop import *  # noqa: F403

assert not hasattr(goloop, "EventLoopPolicy") and "EventLoopPolicy" not in dir()
try:
    goloop.install()
except RuntimeError as error:
    print(error)
