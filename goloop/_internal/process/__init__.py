"""The process: the loop that it chooses, its threads, its children."""
