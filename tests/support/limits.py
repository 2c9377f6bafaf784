"""A pytest plugin: the ends of tests that hang, and of runs that are cut.

A test that exceeds its limit (`timeout` in pyproject.toml, or its mark) fails: pytest-timeout
raises an exception in the main thread. A test that does not end by that, because C code holds the
GIL for example, ends its process after GRACE more seconds, with the stacks of all threads.
pytest-xdist then starts another worker, which runs the other tests: see Scheduling.

A run that leaves out tests says how many, and does not succeed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

# Seconds from the exception in a test until its process ends.
GRACE = float(os.environ.get("GOLOOP_TEST_GRACE") or 30)

# Files for one worker each: the products of their fixtures are expensive, or their tests start so
# many programs that two of them at once would disturb each other.
TOGETHER = ("test_packaging.py", "test_benchmarks.py", "test_library.py", "test_accept_backoff.py")


# ---- a test that hangs ---------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Set the time at which the process ends; pytest-timeout then sets the timer of the test."""
    from _pytest.faulthandler import fault_handler_stderr_fd_key

    # The stderr of the process, because Python's stderr is captured.
    stderr = item.config.stash.get(fault_handler_stderr_fd_key, 2)
    faulthandler.dump_traceback_later(settings.timeout + GRACE, exit=True, file=stderr)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Any:
    """Cancel the end of the process after the test, also if a timer was cancelled before."""
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_enter_pdb() -> None:
    """Let the user of a debugger take all the time."""
    faulthandler.cancel_dump_traceback_later()


# ---- workers -------------------------------------------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each worker one test after another, but the files of TOGETHER as a whole.

    They come first, because they take longest.  (xdist's own way, --dist=loadgroup, goes by
    an attribute that pytest 9.2 no longer has.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        """xdist's scheduler, which by itself does not go on after the end of a worker.

        It would run the test that ended the worker again; it would give a new worker a single test,
        which a worker does not begin before it has a second one or knows that there is
        none; and it would fail if it gave tests to a worker that has not collected them yet, or
        that has just ended.
        """

        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::")[0]
            return file if file.endswith(TOGETHER) else nodeid

        def remove_node(self, node: Any) -> str | None:
            """Remove a worker; return the test that it has not ended, and give others the rest."""
            workload = self.assigned_work.pop(node)
            pending = [
                test for unit in workload.values() for test, done in unit.items() if not done
            ]
            if not pending:
                return None
            for scope, unit in workload.items():
                rest = {test: False for test in unit if test in pending[1:]}
                if rest:
                    self.workqueue[scope] = rest
            for other in self.assigned_work:
                self._reschedule(other)
            return pending[0]

        def _assign_work_unit(self, node: Any) -> None:
            """Give a worker tests; if it has ended, remove_node() gives them to others."""
            with contextlib.suppress(OSError):
                super()._assign_work_unit(node)

        def _reschedule(self, node: Any) -> None:
            """Give a worker tests until it has two, or knows that there are no others."""
            if node not in self.registered_collections:
                return  # schedule() is called when it has
            super()._reschedule(node)
            while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
                super()._reschedule(node)

    return Scheduling(config, log)


# ---- a run that is cut ---------------------------------------------------------------------------


class Counts:
    """The collected tests of a run, and those that were run; a plugin of the main process."""

    def __init__(self) -> None:
        self._collected = 0
        self._run: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Count the tests that a worker has collected: all workers collect the same ones."""
        self._collected = len(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests of a run without workers."""
        self._collected = max(self._collected, len(session.items))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test."""
        self._run.add(report.nodeid)

    def _left_out(self, config: pytest.Config) -> int:
        """Return the number of tests that were not run."""
        return 0 if config.option.collectonly else self._collected - len(self._run)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Any:
        """Make a run that has left out tests fail."""
        found = yield
        if self._left_out(session.config) > 0 and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return found

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        """Say how many tests were not run."""
        if (number := self._left_out(config)) > 0:
            share = number / self._collected
            terminalreporter.write_sep(
                "=",
                f"{number} of {self._collected} tests were NOT RUN ({share:.0%})",
                red=True,
                bold=True,
            )


def pytest_configure(config: pytest.Config) -> None:
    """Register Counts, except in a worker."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Counts(), "goloop-counts")


def pytest_unconfigure() -> None:
    """Leave no end of the process set."""
    with contextlib.suppress(RuntimeError):
        faulthandler.cancel_dump_traceback_later()
