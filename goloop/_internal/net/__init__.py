"""Connections, pipes, datagrams, sockets and names."""
