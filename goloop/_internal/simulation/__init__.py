"""Simulated kernels: loops and sockets in memory, in virtual time, from one seed."""
