"""Metrics of the loops, the sampling profile and slow iterations."""
