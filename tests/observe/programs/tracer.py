"""The program `tracer` of test_trace.py."""

import sys
import time

from goloop.operations.commands.client import Question

question = Question(int(sys.argv[1]), ask="trace")
while b"\n" not in question.data:
    question.receive()
print(bytes(question.data.partition(b"\n")[0]), flush=True)
time.sleep(600)
