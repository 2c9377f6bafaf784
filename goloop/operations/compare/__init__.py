"""Measuring in turns, and the command `goloop compare`: a user's program on several event loops.

The parts that measure know no case: `turns` takes turns, `machine` describes the machine and finds
disturbed windows, `intervals` has the statistics, `text` writes figures, `talker` is the other end
of a process that measures. The repository's benchmarks use them, too.

The command: `arguments` reads the command line into a Plan, `loops` finds the installed loops,
`launch` runs the program on one of them, `servers` starts and ends servers, whose ports are those
of `server_ports` beside this package, `load` is the load generator, a process of its own with
`client` as its other end, `rounds` measures, `verdicts` judges ratios, `report` writes the result.
"""
