"""The Loop class without its transports: construction, running, signals, debug mode, closing."""
