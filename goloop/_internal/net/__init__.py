"""Connections, TLS, pipes, datagrams, sockets and names."""
