"""TLS over the native data path."""
