"""The commands of `python -m goloop`: compare, doctor, top, ps, profile and others."""
