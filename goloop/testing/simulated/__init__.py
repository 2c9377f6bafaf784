"""The simulated kernel and the replaced functions: loop, sockets, clocks, random numbers."""
