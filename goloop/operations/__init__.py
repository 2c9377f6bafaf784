"""Tools for operators: introspection of a running process, exporters of metrics, and the commands.

`introspection` answers the commands within the process that they inspect; `prometheus` and `otel`
export its metrics.  The commands are in `commands`.  All of it depends on the loop.  The loop
imports nothing from here but the doctor's recorder, in a program that `goloop doctor` runs.

Programs import `goloop.prometheus` and `goloop.otel`; the rest is private.
"""
