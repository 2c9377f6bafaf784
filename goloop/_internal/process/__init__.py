"""Process-wide parts: the choice of the loop, threads with loops, shared listeners, children."""
