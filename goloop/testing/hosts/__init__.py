"""Hosts of a simulation: their programs, child processes, starts and crashes."""
