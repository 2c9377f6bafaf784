"""The measurement: rounds of starts, each with bursts of all loops in random turns."""

from __future__ import annotations

import base64
import contextlib
import functools
import os
import select
import time
from dataclasses import dataclass, field

from .. import server_ports
from ..keeper import Keeper
from . import results
from .arguments import MOST_ROUNDS
from .client import LoadGenerator
from .counts import Count, read_count
from .diagnosis import certain_reason, likely_reason
from .measuring import machine
from .measuring.others import OtherPrograms, in_words
from .measuring.turns import Failure, take_turns
from .servers import PortTaken, Program, ending, uninterrupted

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
# The advice on a server that says that its port is in use, although the given port is free.
_OTHER_PORT = (
    "The port in use is not {port}, which the variable PORT has: pass the server's own port by "
    "--port, or write {{port}} in its arguments"
)
# Attempts to start a server in a round, each on another port if another program took the last.
_PORT_TRIES = 5
# Answers with this status or a higher one are failures.
_BAD_STATUS = 400
# A program that ends is looked at this often, in seconds; it is idle between two looks if its CPU
# time changes by less than this, in seconds. (It is less after one of its processes has ended.)
_LOOK_SECONDS = 1.0
_IDLE_CPU = 0.01
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
    # The name of the requests that a program that ends says it has made; "" if it says none, and
    # None if no run has ended.
    unit: str | None = None
    others: OtherPrograms = field(default_factory=OtherPrograms)
    # False if the program does not get a port that is reserved for it: see server_ports.Port.
    reserves_ports: bool = True

    @property
    def noun(self) -> str:
        """The word for the samples in reports."""
        return "runs" if self.plan.kind == "run" else "bursts"

    def active(self) -> list[Loop]:
        """Return the loops without a failure."""
        return [loop for loop in self.plan.loops if loop.name not in self.failures]

    def fail(self, loop: Loop, failure: Failure) -> None:
        """Store a failure of a loop, which is not measured any more."""
        self.failures[loop.name] = failure


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
            with uninterrupted():
                keeper = stack.enter_context(Keeper())
                if plan.kind != "run":
                    client = stack.enter_context(LoadGenerator(found.client_cores, keeper))
            found.others.look()
            while _goes_on(found) and len(found.active()) > 1:
                prefix = progress_words(found, time.monotonic() - started)
                progress = functools.partial(_say_in_round, say, prefix)
                measure_round(found, keeper, client, progress)
                found.others.look()
                found.rounds += 1
    except KeyboardInterrupt:
        found.interrupted = True
    return found


def _goes_on(found: Measurement) -> bool:
    """Return true if another round is to be measured."""
    if found.plan.rounds is not None:
        return found.rounds < found.plan.rounds
    return found.rounds < MOST_ROUNDS and results.needs_rounds(found)


def progress_words(found: Measurement, seconds: float) -> str:
    """Return the number of the round that begins, the time left, and the disturbances up to now.

    `seconds` is the time of the measurement up to now.
    """
    plan = found.plan
    if plan.rounds is None:
        words = f"round {found.rounds + 1} of at most {MOST_ROUNDS}"
    else:
        words = f"round {found.rounds + 1} of {plan.rounds}"
        if found.rounds:
            words += f", {seconds / found.rounds * (plan.rounds - found.rounds):.0f} s left"
    known, disturbed = results.disturbed_bursts(found)
    if found.rounds and disturbed:
        users = in_words(found.others.shares())
        words += f", {disturbed} of {known} {found.noun} disturbed" + (
            f" by {users}" if users else ""
        )
    return words


def _say_in_round(say: Callable[[str], None], prefix: str, words: str) -> None:
    """Report the progress within a round."""
    say(f"{prefix}: {words}")


# ---- servers -------------------------------------------------------------------------------------


def _server_round(
    found: Measurement, keeper: Keeper, client: LoadGenerator, say: Callable[[str], None]
) -> None:
    """Measure the bursts of all loops, whose servers run at once or one after the other."""
    if found.plan.alive_at_once:
        _measure_together(found, keeper, client, say, found.active())
    else:
        take_turns(
            found.active(),
            lambda loop: _measure_together(found, keeper, client, say, [loop]),
            found.fail,
        )


def _measure_together(
    found: Measurement,
    keeper: Keeper,
    client: LoadGenerator,
    say: Callable[[str], None],
    loops: Sequence[Loop],
) -> None:
    """Start the servers of loops, and measure their bursts in random turns."""
    servers: dict[Loop, _Server] = {}
    with contextlib.ExitStack() as stack:

        def start(loop: Loop) -> None:
            """Start a server."""
            say(f"starting {loop.name}")
            servers[loop] = _Server(found, keeper, stack, loop)

        def wait(loop: Loop) -> None:
            """Wait until a server accepts connections."""
            say(f"waiting for {loop.name} to listen on port {servers[loop].port}")
            servers[loop].wait_until_ready()

        def burst(scenario: Scenario, number: int, loop: Loop) -> None:
            """Load a server."""
            say(f"{scenario}: {loop.name}")
            warmup = _WARMUP if number else _FIRST_WARMUP
            server = servers[loop]
            _burst(found, client, server.program, (scenario, server.port, warmup))
            found.others.look()  # a compiler's process may end before the round does

        take_turns(loops, start, found.fail)
        take_turns(list(servers), wait, found.fail)
        for scenario in found.scenarios:
            for number in range(found.plan.bursts):
                active = [loop for loop in servers if loop.name not in found.failures]
                take_turns(active, functools.partial(burst, scenario, number), found.fail)


class _Server:
    """A server of a round: its program, and its port."""

    def __init__(
        self, found: Measurement, keeper: Keeper, stack: contextlib.ExitStack, loop: Loop
    ) -> None:
        """Start the server, which the stack ends; raises Failure."""
        self._found = found
        self._keeper = keeper
        self._stack = stack
        self._start(loop)

    def _start(self, loop: Loop) -> None:
        """Choose a port and start the program."""
        plan = self._found.plan
        self._reserved = None
        if plan.port is not None:
            _wait_for_port(plan.host, plan.port)
            self.port = plan.port
        else:
            try:
                self._reserved = server_ports.Port(plan.host, reserve=self._found.reserves_ports)
            except OSError as error:
                raise Failure(f"a server cannot listen on {plan.host}: {error}") from None
            self._stack.enter_context(self._reserved)
            self.port = self._reserved.number
        with uninterrupted():
            self.program = self._stack.enter_context(
                Program(
                    loop,
                    plan.command(self.port),
                    self._found.server_cores,
                    {"PORT": str(self.port)},
                    self._keeper,
                )
            )
        self._found.others.add_session(self.program.process.pid)

    def wait_until_ready(self) -> None:
        """Wait until the server accepts connections; raises Failure.

        A server whose port another program takes is started again with another port.
        """
        plan = self._found.plan
        for number in range(_PORT_TRIES):
            try:
                self.program.wait_until_ready(plan.host, self.port, plan.start_limit)
                break
            except PortTaken as taken:
                if self._reserved is None or number + 1 == _PORT_TRIES:
                    raise
                used = server_ports.is_in_use(plan.host, self.port)
                if not used and not self._reserved.is_reserved:
                    words = f"{taken}. {_OTHER_PORT.format(port=self.port)}"
                    raise Failure(words, taken.output) from None
            self.program.end()
            self._reserved.release()
            if not used:
                self._found.reserves_ports = False
            self._start(self.program.loop)
        if self._reserved is not None:
            self._reserved.release()


def _wait_for_port(host: str, port: int) -> None:
    """Wait until the last server has released a fixed port; raise Failure if it is in use."""
    end = time.monotonic() + _PORT_SECONDS
    while server_ports.is_in_use(host, port):
        if time.monotonic() > end:
            raise Failure(
                f"port {port} is in use by another program: end it, or write {{port}} in the "
                "server's arguments instead of its port"
            )
        time.sleep(0.05)


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
        program.check_running("during a burst", wait=1.0)  # an ending server refuses connections
        raise program.failure(str(error)) from None
    _check_result(result, program)
    if not result["requests"]:
        reason = certain_reason(plan, port, result["wrong"]) if result["errors"] else ""
        if reason:
            raise program.failure(reason)
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
            result["disturbance"],
            result["measured_errors"],
        )
    )
    some = [s for s in found.samples if (s.loop, s.scenario) == (program.loop.name, scenario)]
    limit = min(_MAX_SILENT, (plan.rounds or MOST_ROUNDS) * plan.bursts)
    if len(some) >= limit and not any(sample.requests for sample in some):
        reason = certain_reason(plan, port, result["wrong"])
        raise program.failure(reason or likely_reason(plan, result["errors"]))


def _check_result(result: dict[str, Any], program: Program) -> None:
    """Raise Failure if the server has ended, answers with errors, or runs another loop."""
    program.check_running("during a burst")
    bad = {status: n for status, n in result["statuses"].items() if int(status) >= _BAD_STATUS}
    if bad:
        statuses = ", ".join(f"{n} answers with status {status}" for status, n in bad.items())
        raise program.failure(f"{statuses}: choose another --path, or --requests")
    program.uses_loop()  # raises Failure if another loop runs by now


# ---- programs that end ---------------------------------------------------------------------------


def _run_round(
    found: Measurement, keeper: Keeper, client: None, say: Callable[[str], None]
) -> None:
    """Run the program to its end on each loop, in random turns."""

    def run(loop: Loop) -> None:
        """Run the program on one loop."""
        say(loop.name)
        cores = list(range(os.cpu_count() or 1))
        before = machine.snapshot([], cores)
        with contextlib.ExitStack() as stack:
            with uninterrupted():
                program = stack.enter_context(Program(loop, found.plan.command(0), [], {}, keeper))
            found.others.add_session(program.process.pid)
            status, used = _wait_for_end(program, found.plan.start_limit)
            ended, seconds = time.monotonic(), time.perf_counter() - program.started
            program.process.returncode = code = os.waitstatus_to_exitcode(status)
            if code:
                raise program.failure(f"the program ended {ending(code)}")
            if not program.uses_loop():
                raise program.failure("no event loop ran in the program")
            cpu = used.ru_utime + used.ru_stime
            spent = machine.account(before, machine.snapshot([], cores))
            words = machine.disturbance(spent.of_program(cpu), 0.0, seconds)
            count = read_count(program.last_output()) or Count(1, "")
            if found.unit not in (None, count.unit):
                raise program.failure(
                    f"the program counts {count.unit or 'no requests'}, and in an earlier run "
                    f"{found.unit or 'no requests'}: let each run end with the same kind of line"
                )
            found.unit = count.unit
            if count.unit:  # the start of Python makes no requests
                start_cpu, begin = program.start_costs()
                cpu, seconds = cpu - start_cpu, count.seconds or ended - begin
            found.samples.append(
                Sample(
                    found.scenarios[0],
                    loop.name,
                    found.rounds,
                    count.number,
                    seconds,
                    cpu,
                    0.0,
                    None,
                    None,
                    words,
                )
            )
            found.others.look()

    take_turns(found.active(), run, found.fail)


def _wait_for_end(program: Program, limit: float) -> tuple[int, Any]:
    """Wait until a program ends; return its wait status and its resource usage.

    Raises Failure for a program that listens on a port and is idle for the limit in seconds, as an
    unused server.
    """
    pid = program.process.pid
    last, since = 0.0, time.monotonic()
    with contextlib.suppress(OSError, AttributeError), _pidfd(pid) as fd:  # Linux has it
        while not select.select([fd], [], [], _LOOK_SECONDS)[0]:
            pids = program.pids()
            cpu = sum(machine.cpu_seconds(each) or 0.0 for each in pids)
            if abs(cpu - last) >= _IDLE_CPU:
                since = time.monotonic()
            last = cpu
            if time.monotonic() - since < limit:
                continue
            for host, port in server_ports.listening_addresses(pids):
                raise program.failure(
                    f"the program listens on {host}, port {port}, and has neither ended nor worked "
                    f"for {limit:g} s: omit --run for a server, or pass a larger --start-limit for "
                    "a program that waits longer"
                )
    _, status, used = os.wait4(pid, 0)
    return status, used


@contextlib.contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    """Open a descriptor that becomes readable when the process ends; raises OSError."""
    fd = os.pidfd_open(pid)
    try:
        yield fd
    finally:
        os.close(fd)
