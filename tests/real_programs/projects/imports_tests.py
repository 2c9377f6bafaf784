"""A test that imports nothing of goloop."""

import sys


def test_modules():
    assert "pytest_goloop" in sys.modules
    assert "goloop" not in sys.modules
