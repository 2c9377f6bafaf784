"""`python -m goloop top`, `ps` and `pstree`, which look at other processes."""
