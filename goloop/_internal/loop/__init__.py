"""The loop: its parts that are no transports, its beginning and its end."""
