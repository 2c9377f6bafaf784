"""Copied beside a suite: code that asks asyncio for a new loop gets it from the policy."""

import os

if os.environ["SUITE_LOOP"] == "goloop":
    from goloop._internal.process.policy import set_policy

    set_policy()
