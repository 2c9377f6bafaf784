"""Metrics of the loops, the sampling profile and the flight recorder."""
