"""The side-by-side comparison of event loops: ``python -m benchmarks --help``."""
