"""TLS connections: the protocol over a stream, its handshakes and its errors."""
