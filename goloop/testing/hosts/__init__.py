"""The hosts of a simulation, what runs on them, and how that ends."""
