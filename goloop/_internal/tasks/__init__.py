"""goloop.Future and goloop.Task."""
