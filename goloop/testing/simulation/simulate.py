"""testing.simulate(): a test that runs once for each of many seeds, and its failure notes."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
import re
import time
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ..._internal.coroutine_check import refuse_coroutine
from ..simulated.errors import NonDeterminism
from ..simulated.patches import replacements
from . import leaks, pictures, policies, replay
from .run import new_session, run_to_end
from .session import loop_class
from .tracebacks import without_own_frames

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..simulated.randomness import DrawnRandomness

_LAST = 20  # events that a note shows
PROGRESS = 5.0  # seconds between two progress lines
_TOKEN = re.compile(r"(?P<policy>[a-z]+(:[0-9]+)?)/(?P<seed>[0-9]{1,19})")
# Frequent calls of a loop, which notes leave out.
_SILENT = re.compile(r"[0-9]+ (epoll|eventfd|fdinfo|fcntl|[gs]etsockopt|getsockname|getpeername)")
_SUSPECTS = """\
Usual causes: the order of a set of strings (hashes differ by process) or of objects (ordered by
address; tasks and futures are numbered, but as_completed() makes a set of coroutines), id() in an
order or a name, files, environment variables, a module's state that an earlier run has changed,
and TLS with ECDSA."""


@dataclasses.dataclass
class Options:
    """Options of the command line, which replace the arguments of tests."""

    seeds: int | None = None
    seed: int | None = None
    replay: str | None = None
    jobs: int = 1
    # Called with the name of a test, its finished seeds, and all its seeds.
    progress: Callable[[str, int, int], None] | None = None


options = Options()


@dataclasses.dataclass(frozen=True)
class Plan:
    """The arguments of `simulate()` for one test."""

    max_time: float | None
    policy: str
    allow: frozenset[str]
    loop: str = "goloop"

    def run(
        self,
        function: Callable[..., Any],
        seed: int,
        record: bool = False,
        drawn: DrawnRandomness | None = None,
    ) -> SeedResult:
        """Run one seed of a test, or one run with drawn decisions; return the result.

        The result has the test's exception.  Only KeyboardInterrupt, SystemExit, GeneratorExit and
        pytest's Skipped are raised.
        """
        session = new_session(
            seed, self.policy, loop=self.loop, record=record, allow=self.allow, drawn=drawn
        )
        exc = value = None
        try:
            value = run_to_end(session, function, self.max_time)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as failed:  # pytest.fail() raises one
            if type(failed).__name__ == "Skipped":
                raise
            exc = without_own_frames(failed)
        return SeedResult(
            seed,
            exc,
            session.trace,
            session.events,
            session.ended,
            session.position,
            value,
            session.stopped,
        )


@dataclasses.dataclass(frozen=True)
class SeedResult:
    """The result of one run of a seed."""

    seed: int
    exc: BaseException | None
    trace: str
    events: str  # the trace until the program ended
    time: float
    position: tuple[int, bool] | None = None
    value: Any = None
    stopped: float = 0.0  # time of the last event


def simulate(
    seeds: int = 200,
    *,
    max_time: float | None = 3600.0,
    policy: str = "io",
    loop: str = "goloop",
    allow: Collection[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Return a decorator that runs a coroutine function in a simulation for each of many seeds.

    The decorated test is a plain function.  A parameter `sim` of the coroutine function gets the
    `Simulation`; its other parameters do not change.  The first seed that fails ends the test with
    its exception and a note: the seed, a token that replays it, the last events.  That seed is run
    again in two new processes with other hashes of strings; if the runs differ, the test fails
    with NonDeterminism.  Since 0.3.0.

    Args:
        seeds: Number of runs; their seeds are 0, 1, 2 and so on.
        max_time: Limit of a run in seconds of virtual time; None: no limit.
        policy: The order of ready tasks.  "io": asyncio's order; seeds decide only the input.
            "shuffle": a random order.  "pct:D": the task with the highest of random priorities,
            which change at D random steps.  "dfs:D": asyncio's order with up to D exceptions; the
            seeds number all such runs, and the test ends after the last one.
        loop: "goloop", or "asyncio" for CPython's own loop on the same simulated kernel.
        allow: Kinds of leaks that are not errors: running "tasks", open "transports" and servers,
            unhandled "exceptions".

    Returns:
        A decorator.

    Raises:
        LeftBehind: Raised by the test: the program has returned without ending its tasks,
            transports or servers.
        NonDeterminism: Raised by the test: a failing seed gives different runs.
        ValueError: `policy`, `loop` or a kind in `allow` does not exist.
        TypeError: The decorated object is not a coroutine function.
    """
    if callable(seeds):
        raise TypeError("write @testing.simulate(), with parentheses")
    if seeds < 1:
        raise ValueError(f"seeds must be >= 1, got {seeds!r}")
    policies.check(policy)
    loop_class(loop)
    plan = Plan(max_time, policy, leaks.check(allow), loop)

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        """Return the test function for a coroutine function; TypeError for other objects."""
        refuse_coroutine(function, "testing.simulate()")
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"expected a coroutine function (async def), got {function!r}")
        signature = inspect.signature(function)
        takes_sim = "sim" in signature.parameters

        def program(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Any], Any]:
            """Return the main function of a simulation that calls the test with these arguments."""

            def main(sim: Any) -> Any:
                """Call the test, with the simulation if it has a parameter `sim`."""
                return function(*args, **kwargs, **({"sim": sim} if takes_sim else {}))

            return main

        @functools.wraps(function)
        def test(*args: Any, **kwargs: Any) -> None:
            """Run all seeds; raise the first failure, with a traceback without goloop's frames."""
            __tracebackhide__ = True
            try:
                explore(SimulatedCall(test, program(args, kwargs), args, kwargs), plan, seeds)
            except BaseException as exc:
                raise without_own_frames(exc)  # noqa: B904

        kept = [each for name, each in signature.parameters.items() if name != "sim"]
        test.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=kept, return_annotation=None
        )
        test.goloop_plan = plan, program  # type: ignore[attr-defined]
        return test

    return decorate


@dataclasses.dataclass(frozen=True)
class SimulatedCall:
    """A call of a simulated test with its arguments."""

    test: Callable[..., None]
    main: Callable[[Any], Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def explore(call: SimulatedCall, plan: Plan, seeds: int) -> None:
    """Run the seeds of a test, or the seeds of the command line; raise the first failure.

    A replay token, of the command line or GOLOOP_SIM_REPLAY, selects one seed and its policy.
    ValueError if the token is invalid.
    """
    __tracebackhide__ = True
    token = options.replay or os.environ.get("GOLOOP_SIM_REPLAY")
    if token:
        policy, seed = read_token(token)
        plan = dataclasses.replace(plan, policy=policy)
        result = plan.run(call.main, seed, record=True)
        if result.exc is not None:
            _fail(call, result, plan, "", result.events)
        return
    if options.seed is not None:
        numbers: Iterable[int] = (options.seed,)
    else:
        numbers = range(options.seeds or seeds)
    explored = policies.Exploration()
    with replacements():  # once for all seeds
        reported = time.monotonic()
        for done, seed in enumerate(_seeds_to_run(call, plan, numbers), 1):
            result = plan.run(call.main, seed)
            if result.exc is not None:
                _rerun_and_fail(call, plan, result)
            if explored.add_run(result.position):
                return
            if options.progress is not None and time.monotonic() - reported >= PROGRESS:
                reported = time.monotonic()
                options.progress(call.test.__qualname__, done, options.seeds or seeds)


def _seeds_to_run(call: SimulatedCall, plan: Plan, numbers: Iterable[int]) -> Iterable[int]:
    """Return the seeds to run in this process.

    With `options.jobs` of 2 or more, new processes run all seeds first.  Then only the lowest
    failing seed is returned, or none; but all seeds if the processes cannot run the test.
    """
    if options.jobs < 2 or options.seed is not None:
        return numbers
    request, _ = replay.request(call.test, call.args, call.kwargs)
    if request is None:
        return numbers
    seeds = list(numbers)
    shares = [seeds[start :: options.jobs] for start in range(options.jobs)]
    answers = replay.run_in_processes(
        [{**request, "policy": plan.policy, "seeds": share} for share in shares if share]
    )
    failed = [answer["seed"] for answer in answers if answer.get("seed") is not None]
    if any("error" in answer for answer in answers):
        return numbers
    return [min(failed)] if failed else []


def _rerun_and_fail(call: SimulatedCall, plan: Plan, result: SeedResult) -> None:
    """Run a failing seed again in two new processes; raise its exception or NonDeterminism.

    If new processes cannot run the test, the note of the exception says so.
    """
    __tracebackhide__ = True
    request, reason = replay.request(call.test, call.args, call.kwargs)
    if request is not None:
        each = {**request, "policy": plan.policy, "seeds": [result.seed], "record": True}
        answers = replay.run_in_processes([each, each])
        reason = next((answer["error"] for answer in answers if "error" in answer), "")
        if not reason:
            check_same_runs(result, answers)
            _fail(call, result, plan, "Two new processes gave the same run.", answers[0]["events"])
    _fail(
        call, result, plan, f"The run was not repeated in a new process: {reason}.", result.events
    )


def check_same_runs(result: SeedResult, answers: list[dict[str, Any]]) -> None:
    """Raise NonDeterminism if the runs of a seed differ."""
    kinds = [type(result.exc).__name__, *(answer["kind"] or "no error" for answer in answers)]
    difference = ""
    if len(set(kinds)) > 1:
        difference = f"The runs ended with {', then '.join(kinds)}.\n"
    one, other = (answer["trace"].splitlines() for answer in answers)
    calls = [line for line in one if not _is_step(line)]
    difference += _first_difference(one, other) or _first_difference(
        result.trace.splitlines(), calls
    )
    if difference:
        raise NonDeterminism(
            f"seed {result.seed} has failed, but two runs of it differ.\n{difference}{_SUSPECTS}"
        ) from result.exc


def _is_step(line: str) -> bool:
    """Return true if a line of a trace is a step or a cancellation of a task."""
    return line.split(" ", 2)[1:2] in (["step"], ["cancel"])


def _first_difference(one: list[str], other: list[str]) -> str:
    """Return a text with the first lines in which two traces differ, or ""."""
    for number, (a, b) in enumerate(zip([*one, ""], [*other, ""], strict=False), 1):
        if a != b:
            return (
                f"The first event that differs is number {number}:\n"
                f"    {_format_event(a)}\n    {_format_event(b)}\n"
            )
    return ""


def _format_event(line: str) -> str:
    """Return a line of a trace with its time in seconds; "the end" for an empty line."""
    if not line:
        return "the end"
    when, _, event = line.partition(" ")
    return f"{(int(when) - 1_000_000_000) / 1e9:14.6f} s  {event}"


def _fail(call: SimulatedCall, result: SeedResult, plan: Plan, again: str, events: str) -> None:
    """Raise the exception of a failed seed with a note."""
    __tracebackhide__ = True
    assert result.exc is not None
    token = f"{plan.policy}/{result.seed}"
    result.exc.add_note(
        f"Simulation: seed {result.seed}, policy {plan.policy}, ended at {result.stopped:.6f} s of "
        f"virtual time.\nReplay: pytest --goloop-replay={token}, or GOLOOP_SIM_REPLAY={token}\n"
        + (f"{again}\n" if again else "")
        + failure_note(call.test, token, events)
    )
    raise result.exc


def failure_note(test: Callable[..., Any], token: str, events: str) -> str:
    """Return the last events for a note; write the trace if GOLOOP_SIM_TRACES is set.

    An error of writing is only mentioned in the note.
    """
    shown = [line for line in events.splitlines() if not _SILENT.match(line)]
    last = "\n".join(map(_format_event, shown[-_LAST:])) or "    none"
    return f"{_write_trace(test, token, events)}The last events:\n{last}"


def _write_trace(test: Callable[..., Any], token: str, events: str) -> str:
    """Write the trace to the folder GOLOOP_SIM_TRACES; return a line for the note."""
    folder = os.environ.get("GOLOOP_SIM_TRACES")
    if not folder:
        return ""
    name = re.sub(r"\W+", "-", f"{test.__module__}.{test.__qualname__}-{token}")
    path = os.path.join(folder, f"{name}.json.gz")
    try:
        os.makedirs(folder, exist_ok=True)
        pictures.write(path, events)
    except OSError as exc:
        return f"The trace could not be written: {exc}\n"
    return f"Trace, for ui.perfetto.dev: {path}\n"


def read_token(token: str) -> tuple[str, int]:
    """Return the policy and the seed of a token; ValueError if it is invalid."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise ValueError(f"a token of a simulation is like 'io/7', got {token!r}")
    policies.check(match["policy"])
    return match["policy"], int(match["seed"])
