"""Connections, TLS, pipes, datagrams, sockets and name resolution."""
