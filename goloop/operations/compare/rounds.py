"""The measurement: rounds of starts, each with bursts of all loops in random turns."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import time
from dataclasses import dataclass, field

from . import machine
from .client import LoadGenerator
from .servers import Failure, Program, free_port, is_in_use, uninterrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from .arguments import Plan
    from .loops import Loop

# Seconds of load before a burst, which are not measured: in a server's first burst with a number
# of connections, and in the others.
_FIRST_WARMUP = 0.3
_WARMUP = 0.05
# The time in which a fixed port must be free again after the last server has ended.
_PORT_SECONDS = 5.0
# Answers with this status or a higher one are failures.
_BAD_STATUS = 400
# Bursts without an answer, before a server without any other counts as one that does not answer.
_MAX_SILENT = 3


@dataclass(frozen=True)
class Scenario:
    """A load: connections, and the requests a second or None for as many as possible.

    A program that ends has no load, and 0 connections.
    """

    connections: int
    rate: float | None = None

    def __str__(self) -> str:
        """Describe the load in words."""
        if not self.connections:
            return "the program's time"
        plural = "s" * (self.connections != 1)
        load = "full load" if self.rate is None else f"{self.rate:,.0f} requests/s"
        return f"{self.connections} connection{plural}, {load}"


@dataclass(frozen=True)
class Sample:
    """The result of a burst, or of a program that ended (one request)."""

    scenario: Scenario
    loop: str
    round: int
    requests: int
    seconds: float
    cpu: float | None
    client_cpu: float
    p50: float | None
    p99: float | None
    disturbance: str | None  # "" if others did not disturb the burst, None if that is unknown
    errors: int = 0


@dataclass
class Measurement:
    """All results."""

    plan: Plan
    scenarios: list[Scenario]
    server_cores: list[int]
    client_cores: list[int]
    samples: list[Sample] = field(default_factory=list)
    failures: dict[str, Failure] = field(default_factory=dict)
    rounds: int = 0  # complete ones
    interrupted: bool = False

    def active(self) -> list[Loop]:
        """Return the loops without a failure."""
        return [loop for loop in self.plan.loops if loop.name not in self.failures]


def measure(plan: Plan, say: Callable[[str], None]) -> Measurement:
    """Measure a plan; KeyboardInterrupt ends the measurement, whose results are returned.

    `say` gets a line about the progress.
    """
    if plan.kind == "run":
        found = Measurement(plan, [Scenario(0)], [], [])
        measure_round: Callable[..., None] = _run_round
    else:
        rates = [None] if plan.rate is None else [None, plan.rate]
        loads = [Scenario(count, rate) for count in plan.connections for rate in rates]
        found = Measurement(plan, loads, *machine.choose_cores(plan.server_cores))
        measure_round = _server_round
    started = time.monotonic()
    try:
        with contextlib.ExitStack() as stack:
            client = None
            if plan.kind != "run":
                with uninterrupted():
                    client = stack.enter_context(LoadGenerator(found.client_cores))
            while found.rounds < plan.rounds and len(found.active()) > 1:
                prefix = f"round {found.rounds + 1} of {plan.rounds}"
                if found.rounds:
                    left = (time.monotonic() - started) / found.rounds
                    prefix += f", {left * (plan.rounds - found.rounds):.0f} s left"
                measure_round(found, client, lambda words, prefix=prefix: say(f"{prefix}: {words}"))
                found.rounds += 1
    except KeyboardInterrupt:
        found.interrupted = True
    return found


def shuffled(loops: Sequence[Loop]) -> list[Loop]:
    """Return the loops in a random order."""
    return random.sample(loops, len(loops))


# ---- servers -------------------------------------------------------------------------------------


def _server_round(found: Measurement, client: LoadGenerator, say: Callable[[str], None]) -> None:
    """Start the servers of all loops, at once or in turns, and measure their bursts."""
    loops = shuffled(found.active())
    groups = [loops] if found.plan.alive_at_once else [[loop] for loop in loops]
    for group in groups:
        with contextlib.ExitStack() as stack:
            servers = []
            for loop in group:
                with _failures(found, loop):
                    say(f"starting {loop.name}")
                    port = _choose_port(found.plan)
                    with uninterrupted():
                        program = Program(
                            loop, found.plan.command(port), found.server_cores, {"PORT": str(port)}
                        )
                        servers.append((stack.enter_context(program), port))
            for program, port in servers:
                with _failures(found, program.loop):
                    program.wait_until_ready(found.plan.host, port, found.plan.start_limit)
            for scenario, burst in _turns(found):
                for program, port in random.sample(servers, len(servers)):
                    if program.loop.name not in found.failures:
                        say(f"{scenario}: {program.loop.name}")
                        with _failures(found, program.loop):
                            warmup = _WARMUP if burst else _FIRST_WARMUP
                            _burst(found, client, program, (scenario, port, warmup))


def _turns(found: Measurement) -> Iterator[tuple[Scenario, int]]:
    """Yield each burst of a round: the load, and the burst's number."""
    for scenario in found.scenarios:
        for burst in range(found.plan.bursts):
            yield scenario, burst


@contextlib.contextmanager
def _failures(found: Measurement, loop: Loop) -> Iterator[None]:
    """Store a failure of the loop, which is not measured any more."""
    try:
        yield
    except Failure as error:
        found.failures[loop.name] = error


def _choose_port(plan: Plan) -> int:
    """Return the port of the next server; raise Failure if the fixed one is in use."""
    if plan.port is None:
        return free_port(plan.host)
    end = time.monotonic() + _PORT_SECONDS
    while is_in_use(plan.host, plan.port):
        if time.monotonic() > end:
            raise Failure(
                f"port {plan.port} is in use by another program: end it, or write {{port}} in the "
                "server's arguments instead of its port"
            )
        time.sleep(0.05)
    return plan.port


def _burst(
    found: Measurement, client: LoadGenerator, program: Program, load: tuple[Scenario, int, float]
) -> None:
    """Load a server for a burst and store the sample; raises Failure."""
    scenario, port, warmup = load
    plan = found.plan
    order = {
        "kind": plan.kind,
        "host": plan.host,
        "port": port,
        "payloads": [base64.b64encode(each).decode() for each in plan.payloads],
        "connections": scenario.connections,
        "rate": scenario.rate,
        "tls": plan.tls,
        "insecure": plan.insecure,
        "warmup": warmup,
        "seconds": plan.seconds,
        "limit": plan.start_limit,
        "pids": program.pids(),
        "shares_core": found.server_cores == found.client_cores,
        "cores": sorted({*found.server_cores, *found.client_cores}),
    }
    try:
        result = client.run(order)
    except Failure as error:
        raise program.failure(str(error)) from None
    _check_result(result, program)
    found.samples.append(
        Sample(
            scenario,
            program.loop.name,
            found.rounds,
            result["requests"],
            result["seconds"],
            result["server_cpu"],
            result["client_cpu"],
            result["p50"],
            result["p99"],
            result["disturbance"] if result["requests"] else "no request was answered",
            result["measured_errors"],
        )
    )
    some = [s for s in found.samples if (s.loop, s.scenario) == (program.loop.name, scenario)]
    if len(some) >= _MAX_SILENT and not any(sample.requests for sample in some):
        errors = "; ".join(f"{words} ({n} times)" for words, n in result["errors"].items())
        raise program.failure(errors or f"no answer in {plan.seconds:g} s: pass a larger --seconds")


def _check_result(result: dict[str, Any], program: Program) -> None:
    """Raise Failure if the server has ended, answers with errors, or runs another loop."""
    if (status := program.process.poll()) is not None:
        raise program.failure(f"the server ended during a burst, with status {status}")
    bad = {status: n for status, n in result["statuses"].items() if int(status) >= _BAD_STATUS}
    if bad:
        statuses = ", ".join(f"{n} answers with status {status}" for status, n in bad.items())
        raise program.failure(f"{statuses}: choose another --path, or --requests")
    program.uses_loop()  # raises Failure if another loop runs by now


# ---- programs that end ---------------------------------------------------------------------------


def _run_round(found: Measurement, client: None, say: Callable[[str], None]) -> None:
    """Run the program to its end on each loop, in random turns."""
    cores = list(range(os.cpu_count() or 1))
    for loop in shuffled(found.active()):
        say(loop.name)
        before = machine.snapshot([], cores)
        with _failures(found, loop), contextlib.ExitStack() as stack:
            with uninterrupted():
                program = stack.enter_context(Program(loop, found.plan.command(0), [], {}))
            _, status, used = os.wait4(program.process.pid, 0)
            seconds = time.perf_counter() - program.started
            program.process.returncode = code = os.waitstatus_to_exitcode(status)
            if code:
                raise program.failure(f"the program ended with status {code}")
            if not program.uses_loop():
                raise program.failure("no event loop ran in the program")
            cpu = used.ru_utime + used.ru_stime
            spent = machine.account(before, machine.snapshot([], cores))
            words = machine.disturbance(spent.of_program(cpu), 0.0, seconds)
            found.samples.append(
                Sample(
                    found.scenarios[0], loop.name, found.rounds, 1, seconds, cpu, 0.0, None, None,
                    words,
                )
            )  # fmt: skip
