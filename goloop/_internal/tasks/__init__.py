"""goloop.Future and goloop.Task, and what tasks wait for."""
