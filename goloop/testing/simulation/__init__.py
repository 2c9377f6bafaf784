"""Simulations: their hosts and network, what they look for, and how they are run again."""
