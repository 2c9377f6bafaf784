"""goloop.Future and goloop.Task, and the call graph of tasks."""
