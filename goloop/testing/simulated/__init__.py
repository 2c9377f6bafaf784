"""A simulated kernel, and what a thread on it sees: its loop, sockets, clocks and chance."""
