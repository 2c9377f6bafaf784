"""Measuring in turns, for `goloop compare` and for the repository's benchmarks.

`turns` takes turns, `machine` describes the machine and finds disturbed windows, `others` finds the
programs that disturb them, `intervals` has the statistics, `text` writes figures, `talker` is the
other end of a process that measures. No part of it knows a case.
"""
