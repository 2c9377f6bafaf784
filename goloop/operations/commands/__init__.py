"""The commands of `python -m goloop`: top, ps, pstree, profile, slow, trace, export and doctor."""
