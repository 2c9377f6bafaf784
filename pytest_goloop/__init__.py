"""pytest plugin: the option `--loop=goloop`, options of simulated tests, and two fixtures.

The options `--goloop-...` and the fixtures are described in docs/testing.md.

pytest loads this module by an entry point in every project where goloop is installed.  Therefore
the module is outside of the package goloop, and imports goloop only for an option or a fixture.

`--loop=goloop` has the effect of `python -m goloop`: asyncio's policy makes goloop's loops, for
pytest-asyncio, anyio's plugin, unittest and `asyncio.run`.  A test or a project that chooses a
loop itself gets that loop.

`--loop` belongs to any other plugin or conftest.py that adds it: pytest refuses an option that
exists twice, and goloop may be installed for another project.  Therefore the plugin adds it last,
after the initial conftests, and only if it is free; `--goloop-loop` is the same option in any
case.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os

import pytest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from goloop import testing


_LOOPS = ("asyncio", "goloop")
_LOOP_HELP = "the event loop of asynchronous tests; asyncio, the default, does not change the loop"


def _positive_int(text: str) -> int:
    """Return the number >= 1 that an option's text has; ArgumentTypeError otherwise."""
    with contextlib.suppress(ValueError):
        if (number := int(text)) >= 1:
            return number
    raise argparse.ArgumentTypeError(f"must be a whole number >= 1, got {text!r}")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options whose names only goloop uses."""
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
    simulated.addoption("--goloop-loop", default="asyncio", choices=_LOOPS, help=_LOOP_HELP)
    # pytest_load_initial_conftests is not called in a plugin that a conftest.py names.
    if any(name.endswith("conftest.py") for name, _ in pluginmanager.list_name_plugin()):
        _add_loop_option(parser)


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None]:
    """Add `--loop` after all plugins and conftests whose options pytest can parse."""
    if _loop_option(parser) is None:
        # While `--loop` is unknown, the value in `--loop goloop` is parsed as a path of tests, and
        # the conftests of `testpaths` would not be loaded.
        paths = early_config.known_args_namespace.file_or_dir
        for option, value in itertools.pairwise(args):
            is_loop = option == "--loop" and value in _LOOPS
            if is_loop and value in paths and not os.path.exists(value):
                paths.remove(value)
    yield
    _add_loop_option(parser)


def _loop_option(parser: pytest.Parser) -> str | None:
    """Return the destination of the option `--loop`, or None if there is no such option."""
    groups = [*getattr(parser, "_groups", ()), getattr(parser, "_anonymous", None)]
    options = [each for group in groups if group for each in group.options]
    return next((each.dest for each in options if "--loop" in each.names()), None)


def _add_loop_option(parser: pytest.Parser) -> None:
    """Add `--loop` unless another plugin or a conftest.py has it."""
    if _loop_option(parser) is None:
        parser.getgroup("goloop", "goloop").addoption(
            "--loop", dest="goloop_loop", default="asyncio", choices=_LOOPS, help=_LOOP_HELP
        )


def pytest_configure(config: pytest.Config) -> None:
    """Install goloop and apply the options, before a plugin or a test makes a loop."""
    parser = config._parser
    if _loop_option(parser) == "goloop_loop" and hasattr(parser, "optparser"):
        # The command line is parsed.  pytest 9 refuses an option of a conftest.py in a folder of
        # tests, which is loaded later, if argparse knows the name.
        parser.optparser._option_string_actions.pop("--loop", None)
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
    """Return a header line if goloop is chosen, or if `--loop` is an option of another plugin."""
    if config.getoption("goloop_loop", "asyncio") == "goloop":
        from goloop import __version__, native

        return f"loop: goloop {__version__}" + (
            "" if native else ", which is asyncio's own loop here"
        )
    if _loop_option(config._parser) != "goloop_loop":
        return (
            "goloop: another plugin or conftest.py has --loop; pass --goloop-loop=goloop for goloop"
        )
    return None
