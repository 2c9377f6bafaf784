import asyncio
import sys

if sys.argv[1] == "goloop":
    import goloop

    loop = goloop.new_event_loop()
else:
    loop = asyncio.SelectorEventLoop()
print(loop.get_debug())
loop.close()
