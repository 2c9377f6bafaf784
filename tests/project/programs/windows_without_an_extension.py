import asyncio
import sys
import types

policy = getattr(asyncio.unix_events, "_DefaultEventLoopPolicy", asyncio.SelectorEventLoop)
windows = types.ModuleType("asyncio.windows_events")
windows._DefaultEventLoopPolicy = policy
sys.modules[windows.__name__] = asyncio.windows_events = windows
sys.modules["asyncio.unix_events"] = None  # an ImportError there
del asyncio.unix_events
asyncio.ProactorEventLoop = asyncio.SelectorEventLoop
sys.platform = "win32"
import goloop

print(goloop.native, goloop.run(asyncio.sleep(0, 5)))
