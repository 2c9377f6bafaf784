"""The tests of the Go library by itself.

A package, so that its conftest is native.conftest and the one above stays conftest.
"""
