"""Tests with the plugin within aiohttp, which pytest-aiohttp was before 1.0."""

from aiohttp_tests import test_client_and_server as test_client
from asyncio_works import asyncio_works

__all__ = ["test_client"]


def test_loop(loop):
    assert loop.run_until_complete(asyncio_works()) == "goloop.Loop"
