"""Tests that hang, crash, exit, pass, skip and fail, run by run.py; prints their outcomes."""

from __future__ import annotations

import json
import os
import signal
import time
import unittest

import run


class Bad(unittest.TestCase):
    def test_hang(self) -> None:
        time.sleep(3600)

    def test_crash(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)

    def test_exit(self) -> None:
        os._exit(3)

    def test_good(self) -> None:
        pass

    def test_skip(self) -> None:
        self.skipTest("x")

    def test_fail(self) -> None:
        self.fail("y")


names = unittest.TestLoader().getTestCaseNames(Bad)
outcomes = run.run_all({name: Bad(name) for name in names}, 2, 4.0, False)
print(json.dumps({name: each["outcome"] for name, each in outcomes.items()}))
