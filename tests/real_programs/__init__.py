"""Real programs on goloop.

A package, so that its conftest is real_programs.conftest and the one above stays conftest.
"""
