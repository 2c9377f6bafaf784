"""What loops and tasks are doing, in figures and in words."""
