"""A module of aiohttp's that has imported these functions by name."""

from .net_helpers import create_connection, create_server, sendfile, start_tls

__all__ = ["create_connection", "create_server", "sendfile", "start_tls"]
