"""The command `goloop compare`: a program of the user's on several event loops, in turns.

`arguments` reads the command line into a Plan, `loops` finds the installed loops, `launch` runs
the program on one of them, `servers` starts and ends servers, whose ports are those of
`server_ports` beside this package, `load` is the load generator, a process of its own with
`client` as its other end, `diagnosis` finds out why a server does not answer, `counts` reads how
many requests a client has made, `rounds` measures, `verdicts` judges ratios, `report` and `picture`
write the result.
The package `measuring` has turns, windows and intervals; the repository's benchmarks use it, too.
"""
