import asyncio
import json
import os
import subprocess
import sys

import goloop


async def main():
    asyncio.current_task().set_name(sys.argv[1])
    print("ready", os.getpid(), flush=True)
    command = [sys.executable, "-m", "goloop", "top", "1", "--once", "--json"]
    while await asyncio.to_thread(sys.stdin.readline):
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
        [process] = json.loads(done.stdout)["processes"]
        [loop] = process["loops"]
        print(*{task["name"] for task in loop["tasks"]}, flush=True)


goloop.run(main())
