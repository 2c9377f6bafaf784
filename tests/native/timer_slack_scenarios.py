"""The scenarios of test_timer_slack.py: `python timer_slack_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import goloop


def timer_slack() -> None:
    def slack(thread):
        with open(f"/proc/{thread}/timerslack_ns") as file:
            return int(file.read())

    async def main():
        found = {}
        while "goloop-monitor" not in found:  # a thread has no name at first
            await asyncio.sleep(0.001)
            found = {}
            for thread in os.listdir("/proc/self/task"):
                with open(f"/proc/self/task/{thread}/comm") as file:
                    found.setdefault(file.read().strip(), []).append(slack(thread))
        return found

    before = slack(os.getpid())
    found = {"own": [before, slack(os.getpid())]}
    threads = goloop.run(main())
    found["own"].append(slack(os.getpid()))
    found["go"] = threads["goloop-go"]
    found["monitor"] = threads["goloop-monitor"]
    if (child := os.fork()) == 0:
        again = goloop.run(main())
        good = set(again["goloop-go"]) == {10_000_000} and again["goloop-monitor"] == [before]
        os._exit(0 if good and slack(os.getpid()) == before else 1)
    found["child"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps(found))


def processors_of_few_cores() -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    loops = [goloop.new_event_loop() for _ in range(5)]
    print(json.loads(loops[0]._diagnostics()["runtime"])["gomaxprocs"])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
