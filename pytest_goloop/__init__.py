"""pytest's option `--loop=goloop`: every test runs on goloop, whatever plugin runs it.

pytest loads this by an entry point in every project where goloop is installed.  So it stands
outside of the package goloop, and imports nothing of it without the option.

The option does what `python -m goloop` does for a program: asyncio's policy gives goloop's loops,
which pytest-asyncio, anyio's plugin, unittest and `asyncio.run` ask for.  A test or a project that
names a loop gets the loop it names.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--loop`, unless a plugin that was loaded before has an option of that name."""
    groups = [*getattr(parser, "_groups", ()), getattr(parser, "_anonymous", None)]
    if any("--loop" in each.names() for group in groups if group for each in group.options):
        return
    parser.getgroup("goloop", "goloop").addoption(
        "--loop",
        dest="goloop_loop",
        choices=("asyncio", "goloop"),
        default="asyncio",
        help="goloop: asynchronous tests run on goloop; asyncio: on what they ask for (default)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before any plugin or test has asked for a loop."""
    if config.getoption("goloop_loop", "asyncio") == "goloop":
        from goloop._internal.process.switching import switch

        switch()


def pytest_report_header(config: pytest.Config) -> str | None:
    """The loop, where it was chosen here."""
    if config.getoption("goloop_loop", "asyncio") != "goloop":
        return None
    from goloop import __version__, native

    return f"loop: goloop {__version__}" + ("" if native else ", which is asyncio's own loop here")
