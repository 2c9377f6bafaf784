"""A test that runs once for each of many seeds, and what is told of a seed that fails."""

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
from .run import live, new_life
from .session import loop_class
from .tracebacks import of_the_program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..simulated.randomness import Drawn

_LAST = 20  # events that a note shows
PROGRESS = 5.0  # seconds from one word of progress to the next
_TOKEN = re.compile(r"(?P<policy>[a-z]+(:[0-9]+)?)/(?P<seed>[0-9]{1,19})")
# What a loop asks its kernel all the time.
_SILENT = re.compile(r"[0-9]+ (epoll|eventfd|fdinfo|fcntl|[gs]etsockopt|getsockname|getpeername)")
_SUSPECTS = """\
The usual suspects: the order of a set of strings (each process hashes them its own way) or of
objects (by address; tasks and futures are numbered, but as_completed() makes a set of
coroutines), id() in an order or a name, files, environment variables, a module's state
that an earlier run has changed, and TLS with ECDSA."""


@dataclasses.dataclass
class Options:
    """What a command line asks for, instead of what tests say."""

    seeds: int | None = None
    seed: int | None = None
    replay: str | None = None
    jobs: int = 1
    # Told of a test, how many of its seeds have run here, and how many there are.
    progress: Callable[[str, int, int], None] | None = None


options = Options()


@dataclasses.dataclass(frozen=True)
class Plan:
    """How a test is run."""

    max_time: float | None
    policy: str
    allow: frozenset[str]
    loop: str = "goloop"

    def run(
        self,
        function: Callable[..., Any],
        seed: int,
        record: bool = False,
        drawn: Drawn | None = None,
    ) -> Ran:
        """One seed of it, or what is drawn."""
        life = new_life(
            seed, self.policy, loop=self.loop, record=record, allow=self.allow, drawn=drawn
        )
        exc = value = None
        try:
            value = live(life, function, self.max_time)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as failed:  # pytest.fail() raises one
            if type(failed).__name__ == "Skipped":
                raise
            exc = of_the_program(failed)
        return Ran(seed, exc, life.trace, life.events, life.ended, life.row, value, life.stopped)


@dataclasses.dataclass(frozen=True)
class Ran:
    """How one seed went."""

    seed: int
    exc: BaseException | None
    trace: str
    events: str  # the trace before what was left was cancelled
    time: float
    row: tuple[int, bool] | None = None
    value: Any = None
    stopped: float = 0.0  # when the last event was


def simulate(
    seeds: int = 200,
    *,
    max_time: float | None = 3600.0,
    policy: str = "io",
    loop: str = "goloop",
    allow: Collection[str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Make a test of a coroutine function: it runs in a simulation for each of many seeds.

    The test is a plain function, for pytest or to be called.  The coroutine function's parameter
    `sim`, if it has one, is the `Simulation`; its other parameters stay.  The first seed that fails
    ends the test with what it has raised, and a note: the seed, a token that replays it, the last
    events.  That seed is run again in two new processes, which hash strings differently, and gives
    the same run there, or the test is at fault.  Since 0.3.0.

    Args:
        seeds: How many: 0, 1, 2 and so on.
        max_time: Seconds of virtual time that a run may take; None: any number.
        policy: Which of the tasks that are ready goes next.  "io": as in asyncio, and seeds decide
            what the outside does.  "shuffle": any.  "pct:D": the one with the highest of random
            priorities, which change at D random steps.  "dfs:D": as in asyncio, but D times another
            one; seeds number all such runs, and the test ends when there are no more.
        loop: Whose loop runs: "goloop", or "asyncio": CPython's own, on the same kernel.
        allow: What may be left behind: "tasks" that run, "transports" and servers that are open,
            "exceptions" that no code has handled.

    Returns:
        A decorator.

    Raises:
        LeftBehind: By the test, where the program returns and has left something behind.
        NonDeterminism: By the test, where a seed that fails gives different runs.
        ValueError: There is no such policy or loop, or kind in `allow`.
        TypeError: What is decorated is no coroutine function.
    """
    if callable(seeds):
        raise TypeError("write @testing.simulate(), with parentheses")
    if seeds < 1:
        raise ValueError(f"seeds is a number from 1 on, not {seeds!r}")
    policies.check(policy)
    loop_class(loop)
    plan = Plan(max_time, policy, leaks.check(allow), loop)

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        refuse_coroutine(function, "testing.simulate()")
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"{function!r} is no coroutine function")
        signature = inspect.signature(function)
        takes_sim = "sim" in signature.parameters

        def program(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[Any], Any]:
            def main(sim: Any) -> Any:
                return function(*args, **kwargs, **({"sim": sim} if takes_sim else {}))

            return main

        @functools.wraps(function)
        def test(*args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            try:
                explore(Explored(test, program(args, kwargs), args, kwargs), plan, seeds)
            except BaseException as exc:
                raise of_the_program(exc)  # noqa: B904

        kept = [each for name, each in signature.parameters.items() if name != "sim"]
        test.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=kept, return_annotation=None
        )
        test.goloop_plan = plan, program  # type: ignore[attr-defined]
        return test

    return decorate


@dataclasses.dataclass(frozen=True)
class Explored:
    """A call of a test."""

    test: Callable[..., None]
    main: Callable[[Any], Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def explore(call: Explored, plan: Plan, seeds: int) -> None:
    """Runs a test's seeds, or those that the command line names."""
    __tracebackhide__ = True
    token = options.replay or os.environ.get("GOLOOP_SIM_REPLAY")
    if token:
        policy, seed = read_token(token)
        plan = dataclasses.replace(plan, policy=policy)
        ran = plan.run(call.main, seed, record=True)
        if ran.exc is not None:
            _fail(call, ran, plan, "", ran.events)
        return
    if options.seed is not None:
        numbers: Iterable[int] = (options.seed,)
    else:
        numbers = range(options.seeds or seeds)
    explored = policies.Explored()
    with replacements():  # once for all of them
        told = time.monotonic()
        for done, seed in enumerate(_suspected(call, plan, numbers), 1):
            ran = plan.run(call.main, seed)
            if ran.exc is not None:
                _look_again(call, plan, ran)
            if explored.all(ran.row):
                return
            if options.progress is not None and time.monotonic() - told >= PROGRESS:
                told = time.monotonic()
                options.progress(call.test.__qualname__, done, options.seeds or seeds)


def _suspected(call: Explored, plan: Plan, numbers: Iterable[int]) -> Iterable[int]:
    """The seeds to run here: with more processes the first that fails in one of them."""
    if options.jobs < 2 or options.seed is not None:
        return numbers
    request, _ = replay.request(call.test, call.args, call.kwargs)
    if request is None:
        return numbers
    seeds = list(numbers)
    shares = [seeds[start :: options.jobs] for start in range(options.jobs)]
    answers = replay.in_processes(
        [{**request, "policy": plan.policy, "seeds": share} for share in shares if share]
    )
    failed = [answer["seed"] for answer in answers if answer.get("seed") is not None]
    if any("error" in answer for answer in answers):
        return numbers
    return [min(failed)] if failed else []


def _look_again(call: Explored, plan: Plan, ran: Ran) -> None:
    """Fails, with what two new processes say of it."""
    __tracebackhide__ = True
    request, why = replay.request(call.test, call.args, call.kwargs)
    if request is not None:
        each = {**request, "policy": plan.policy, "seeds": [ran.seed], "record": True}
        answers = replay.in_processes([each, each])
        why = next((answer["error"] for answer in answers if "error" in answer), "")
        if not why:
            differ(ran, answers)
            _fail(call, ran, plan, "Two new processes gave the same run.", answers[0]["events"])
    _fail(call, ran, plan, f"Not run again in a new process: {why}.", ran.events)


def differ(ran: Ran, answers: list[dict[str, Any]]) -> None:
    """NonDeterminism where runs of a seed are not the same."""
    kinds = [type(ran.exc).__name__, *(answer["kind"] or "no error" for answer in answers)]
    what = ""
    if len(set(kinds)) > 1:
        what = f"It ended with {', then '.join(kinds)}.\n"
    one, other = (answer["trace"].splitlines() for answer in answers)
    calls = [line for line in one if not _is_step(line)]
    what += _first_difference(one, other) or _first_difference(ran.trace.splitlines(), calls)
    if what:
        raise NonDeterminism(
            f"seed {ran.seed} has failed, but does not give the same run again.\n{what}{_SUSPECTS}"
        ) from ran.exc


def _is_step(line: str) -> bool:
    return line.split(" ", 2)[1:2] in (["step"], ["cancel"])


def _first_difference(one: list[str], other: list[str]) -> str:
    for number, (a, b) in enumerate(zip([*one, ""], [*other, ""], strict=False), 1):
        if a != b:
            return (
                f"The first event that differs is number {number}:\n"
                f"    {_shown(a) if a else 'the end'}\n    {_shown(b) if b else 'the end'}\n"
            )
    return ""


def _shown(line: str) -> str:
    when, _, what = line.partition(" ")
    return f"{(int(when) - 1_000_000_000) / 1e9:14.6f} s  {what}"


def _fail(call: Explored, ran: Ran, plan: Plan, again: str, events: str) -> None:
    __tracebackhide__ = True
    assert ran.exc is not None
    token = f"{plan.policy}/{ran.seed}"
    ran.exc.add_note(
        f"Simulation: seed {ran.seed}, policy {plan.policy}, ended at {ran.stopped:.6f} s of "
        f"virtual time.\nReplay: pytest --goloop-replay={token}, or GOLOOP_SIM_REPLAY={token}\n"
        + (f"{again}\n" if again else "")
        + told(call.test, token, events)
    )
    raise ran.exc


def told(test: Callable[..., Any], token: str, events: str) -> str:
    """What a note has of the events, which are written to a file, too, if that is wanted."""
    shown = [line for line in events.splitlines() if not _SILENT.match(line)]
    last = "\n".join(map(_shown, shown[-_LAST:])) or "    none"
    return f"{_written(test, token, events)}The last events:\n{last}"


def _written(test: Callable[..., Any], token: str, events: str) -> str:
    """Writes the trace where a folder for that is named, and what a note has of it."""
    folder = os.environ.get("GOLOOP_SIM_TRACES")
    if not folder:
        return ""
    name = re.sub(r"\W+", "-", f"{test.__module__}.{test.__qualname__}-{token}")
    path = os.path.join(folder, f"{name}.json.gz")
    try:
        os.makedirs(folder, exist_ok=True)
        pictures.write(path, events)
    except OSError as exc:
        return f"Its trace could not be written: {exc}\n"
    return f"Its trace, for ui.perfetto.dev: {path}\n"


def read_token(token: str) -> tuple[str, int]:
    """The policy and the seed; ValueError where it is none."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise ValueError(f"{token!r} is no token of a simulation, such as 'io/7'")
    policies.check(match["policy"])
    return match["policy"], int(match["seed"])
