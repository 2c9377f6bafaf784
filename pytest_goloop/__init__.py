"""pytest plugin: the option `--loop=goloop`, options of simulated tests, and two fixtures.

The options `--goloop-...` and the fixtures are described in docs/testing.md.

pytest loads this module by an entry point in every project where goloop is installed.  Therefore
the module is outside of the package goloop, and imports goloop only for an option or a fixture.

`--loop=goloop` has the effect of `python -m goloop`: asyncio's policy makes goloop's loops, for
pytest-asyncio, anyio's plugin, unittest and `asyncio.run`.  A test or a project that chooses a
loop itself gets that loop.
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


def _positive_int(text: str) -> int:
    """Return the number >= 1 that an option's text has; ArgumentTypeError otherwise."""
    with contextlib.suppress(ValueError):
        if (number := int(text)) >= 1:
            return number
    raise argparse.ArgumentTypeError(f"must be a whole number >= 1, got {text!r}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; `--loop` only if no other plugin has added an option of that name before."""
    simulated = parser.getgroup("goloop", "goloop")
    simulated.addoption(
        "--goloop-seeds",
        metavar="N",
        type=_positive_int,
        help="run every simulated test N times, each time with another seed",
    )
    simulated.addoption(
        "--goloop-seed", metavar="S", type=int, help="run every simulated test once, with seed S"
    )
    simulated.addoption(
        "--goloop-replay",
        metavar="TOKEN",
        help="repeat one failed run; its error message has the TOKEN, such as io/7. The variable "
        "GOLOOP_SIM_REPLAY does the same",
    )
    simulated.addoption(
        "--goloop-jobs",
        metavar="N",
        type=_positive_int,
        default=1,
        help="run the seeds of a simulated test in N processes at once",
    )
    groups = [*getattr(parser, "_groups", ()), getattr(parser, "_anonymous", None)]
    if any("--loop" in each.names() for group in groups if group for each in group.options):
        return
    parser.getgroup("goloop", "goloop").addoption(
        "--loop",
        dest="goloop_loop",
        choices=("asyncio", "goloop"),
        default="asyncio",
        help="the event loop of asynchronous tests; asyncio, the default, does not change the loop",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Install goloop and apply the options, before a plugin or a test makes a loop."""
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
    """Pass the options of simulated tests to goloop.testing until the end of the run.

    UsageError if goloop.testing is not available or the replay token is invalid.
    """
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
    vars(simulate.options).update(given, progress=_progress_reporter(config))
    config.add_cleanup(lambda: vars(simulate.options).update(before))


def _progress_reporter(config: pytest.Config) -> Callable[[str, int, int], None]:
    """Return the function that prints the progress of a long simulated test."""

    def report(test: str, done: int, seeds: int) -> None:
        """Print how many seeds of a test are done; nothing in a worker of pytest-xdist."""
        plugin: Any = config.pluginmanager.get_plugin
        reporter, captured = plugin("terminalreporter"), plugin("capturemanager")
        if reporter is None:  # in a worker process of pytest-xdist
            return
        with captured.global_and_fixture_disabled() if captured else contextlib.nullcontext():
            reporter.ensure_newline()
            reporter.write_line(f"{test}: {done} of {seeds} seeds")

    return report


@pytest.fixture
def goloop_clock() -> testing.MockClock:
    """Return a clock that the test advances, for `goloop.testing.new_event_loop(clock=...)`."""
    from goloop import testing

    return testing.MockClock()


@pytest.fixture
def goloop_sim() -> Callable[..., None]:
    """Return `goloop_sim(main, **options)`, which runs a coroutine function in simulations.

    `options` are those of `goloop.testing.simulate`.
    """
    from goloop import testing

    def simulated(main: Callable[..., Any], **options: Any) -> None:
        """Run `main` for each seed, as a test that testing.simulate(**options) decorates."""
        testing.simulate(**options)(main)()

    return simulated


def pytest_report_header(config: pytest.Config) -> str | None:
    """Return a header line with the loop if `--loop=goloop` has chosen it, else None."""
    if config.getoption("goloop_loop", "asyncio") != "goloop":
        return None
    from goloop import __version__, native

    return f"loop: goloop {__version__}" + ("" if native else ", which is asyncio's own loop here")
