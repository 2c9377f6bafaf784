"""Simulations: sessions, policies, faults, links, leak checks, seeds and replays."""
