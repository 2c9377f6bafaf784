"""pytest's option `--loop=goloop`: every test runs on goloop, whatever plugin runs it.

And `--goloop-...`, options of simulated tests, with two fixtures (docs/testing.md).

pytest loads this by an entry point in every project where goloop is installed.  So it stands
outside of the package goloop, and imports nothing of it without an option or a fixture.

`--loop=goloop` does what `python -m goloop` does for a program: asyncio's policy gives goloop's
loops, which pytest-asyncio, anyio's plugin, unittest and `asyncio.run` ask for.  A test or a
project that names a loop gets the loop it names.
"""

from __future__ import annotations

import argparse
import contextlib

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from goloop import testing


def _from_one(text: str) -> int:
    with contextlib.suppress(ValueError):
        if (number := int(text)) >= 1:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 up")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options; `--loop` unless a plugin that was loaded before has one of that name."""
    simulated = parser.getgroup("goloop", "goloop")
    simulated.addoption(
        "--goloop-seeds",
        metavar="N",
        type=_from_one,
        help="simulated tests run N seeds each, whatever number they name",
    )
    simulated.addoption(
        "--goloop-seed", metavar="S", type=int, help="simulated tests run the seed S alone"
    )
    simulated.addoption(
        "--goloop-replay",
        metavar="TOKEN",
        help="simulated tests run what TOKEN, of a failure's note, stands for (GOLOOP_SIM_REPLAY)",
    )
    simulated.addoption(
        "--goloop-jobs",
        metavar="N",
        type=_from_one,
        default=1,
        help="the seeds of a simulated test are shared among N processes",
    )
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
        from goloop._internal.process.patch_process import use_goloop

        use_goloop()
    given = {
        name: config.getoption(f"goloop_{name}", None)
        for name in ("seeds", "seed", "replay", "jobs")
    }
    if any(value not in (None, 1) for value in given.values()) or given["seed"] is not None:
        _choose_seeds(config, given)


def _choose_seeds(config: pytest.Config, given: dict[str, Any]) -> None:
    try:
        from goloop.testing.simulation import simulate
    except ImportError as exc:
        raise pytest.UsageError(f"--goloop-...: {exc}") from exc
    before = vars(simulate.options).copy()
    try:
        if given["replay"] is not None:
            simulate.read_token(given["replay"])
    except ValueError as exc:
        raise pytest.UsageError(f"--goloop-replay: {exc}") from exc
    vars(simulate.options).update(given, progress=_tell_progress(config))
    config.add_cleanup(lambda: vars(simulate.options).update(before))


def _tell_progress(config: pytest.Config) -> Callable[[str, int, int], None]:
    """Of a long exploration, a line from time to time."""

    def tell(test: str, done: int, seeds: int) -> None:
        plugin: Any = config.pluginmanager.get_plugin
        reporter, captured = plugin("terminalreporter"), plugin("capturemanager")
        if reporter is None:  # in a worker of xdist's
            return
        with captured.global_and_fixture_disabled() if captured else contextlib.nullcontext():
            reporter.ensure_newline()
            reporter.write_line(f"{test}: {done} of {seeds} seeds")

    return tell


@pytest.fixture
def goloop_clock() -> testing.MockClock:
    """A clock that the test moves: `goloop.testing.new_event_loop(clock=goloop_clock)`."""
    from goloop import testing

    return testing.MockClock()


@pytest.fixture
def goloop_sim() -> Callable[..., None]:
    """`goloop_sim(main, **options)` runs a coroutine function as `testing.simulate` does."""
    from goloop import testing

    def simulated(main: Callable[..., Any], **options: Any) -> None:
        testing.simulate(**options)(main)()

    return simulated


def pytest_report_header(config: pytest.Config) -> str | None:
    """The loop, where it was chosen here."""
    if config.getoption("goloop_loop", "asyncio") != "goloop":
        return None
    from goloop import __version__, native

    return f"loop: goloop {__version__}" + ("" if native else ", which is asyncio's own loop here")
