"""Runs cases: starts the processes, pins them, takes turns.

The servers of a case are all alive at once, and each round has a short window of each, in a
random order: windows of compared loops lie within seconds of each other, and no loop always
follows the same neighbour.  After WINDOWS windows a server is replaced by a new process.  Cases
without a server (operations, start-up, memory) are measured in a fresh process each time.  A
failure is recorded with the last line of the loop's output, and the loop is tried again in the
next round; after two failures in a row it is omitted from the rest of the case.  Cases of one
group with several loops take part in the same rounds.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import median
from types import MappingProxyType

from benchmarks import allocator, native, quiet, real_servers, windows
from benchmarks.cases import CASES, PYTHON, Case
from benchmarks.child import ABSENT, LAUNCH
from benchmarks.loops import BY_NAME, CEILINGS, Loop
from benchmarks.markdown import short
from benchmarks.real_servers import RealServer
from benchmarks.results import GIL, Run, Sample
from benchmarks.serve import SERVICE
from benchmarks.servers import Child, Server, ending, text_last_line, told
from goloop.operations import server_ports
from goloop.operations.compare.measuring import intervals, machine
from goloop.operations.compare.measuring.turns import Failure, take_turns

GRACE_SECONDS = 30.0  # after the measured time, before a child counts as hung
FAILURES = 2
# The number of windows of a server; then a new process, with another heap, replaces it.
WINDOWS = 8
# Other open files of a process with many connections, with the uncounted batch.
SPARE_FILES = 1000
# How the ceiling in C serves as a server of serve.py.
CEILING_MODES = {"udp": "udp", "buffered": "copy", "broadcast": "broadcast"}
NOTHING: Mapping[str, str] = MappingProxyType({})

# The interval of this ratio determines the number of rounds.
OURS, BASE = "goloop", "uvloop"
# The default number of rounds, and the default width of the intervals.
ROUNDS, UNTIL = 5, 0.05


@dataclass(frozen=True)
class Settings:
    """The durations and numbers of measurements."""

    rounds: int = 3
    seconds: float = 0.4
    warmup: float = 0.1
    # After `rounds`, measure until the interval of OURS ÷ BASE is within this share of its
    # median, or until max_rounds are done; 0: stop after `rounds`.
    until: float = 0
    max_rounds: int = 21
    # 0: the allocator has the settings of allocator.py.  Otherwise it has its defaults, and
    # the rounds use that number of layouts of the heap in turn.
    layouts: int = 0

    @property
    def allocator(self) -> Mapping[str, str]:
        """Return the environment variables of the measured processes' allocator."""
        return NOTHING if self.layouts else allocator.STEADY

    @property
    def times(self) -> list[str]:
        """Return the seconds of warm-up and window, as arguments."""
        return [str(self.warmup), str(self.seconds)]

    @property
    def limit(self) -> float:
        """Return the seconds after which a measurement counts as hung."""
        return self.warmup + self.seconds + GRACE_SECONDS


def free_threaded(python: str) -> bool:
    """Return true if an interpreter was built to run without the GIL."""
    asked = "import sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
    answer = subprocess.run(
        [python, "-c", asked], env=environment(), capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() == "1"


class Runner:
    """Measures under one interpreter."""

    def __init__(self, python: str, settings: Settings, say: Callable[[str], None]) -> None:
        """Build the load generator; raises native.BuildError if that fails."""
        self.python = python
        self.settings = settings
        self.say = say
        [self.server_core], [self.client_core] = machine.choose_cores(1)
        # (case, round) -> the peak rate of BASE, for cases at a constant rate
        self.peaks: dict[tuple[str, int], float] = {}
        self.generator = native.c_program("epoll_load")
        # (case, loop, layout) -> a running server, between two windows
        self.alive: dict[tuple[str, str, int], Server] = {}
        # (service, its core) -> the server that the processes of the row use
        self.services: dict[tuple[str, int], RealServer | Server] = {}

    # ---- one run -------------------------------------------------------------

    def new_run(
        self,
        loops: Sequence[Loop],
        command: str,
        ceilings: Sequence[str] = CEILINGS,
        cases: Sequence[Case] = CASES,
    ) -> Run:
        """Query the interpreter and the loops; build the programs that the cases need."""
        arguments = [f"{loop.name}={loop.factory}={','.join(loop.distributions)}" for loop in loops]
        described = json.loads(self._child(["describe", *arguments], cores=None, limit=120))
        found: dict[str, dict[str, str]] = described["loops"]
        for loop in loops:
            if "error" in found[loop.name]:
                found[loop.name]["error"] = _why(loop, found[loop.name]["error"])
        for ceiling in ceilings:
            try:
                if ceiling != PYTHON:
                    self._ceiling_command(ceiling)
                found[ceiling] = {"version": native.version(ceiling)}
            except native.BuildError as error:
                found[ceiling] = {"error": str(error)}
        costs = native.machine_costs(self.server_core, self.client_core)
        used = {case.service for case in cases}
        return Run(
            python=described["python"],
            build=described["build"],
            command=command,
            date=time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime()),
            machine={
                **machine.facts(costs.pop("hypervisor", "")),
                **costs,
                "packages": ", ".join(
                    version for version in described["packages"].values() if ABSENT not in version
                ),
                "openssl": described["openssl"],
                "services": real_servers.versions([s for s in real_servers.PROGRAMS if s in used]),
            },
            client="C epoll",
            cores=f"server on core {self.server_core}, client on core {self.client_core}",
            rounds=self.settings.rounds,
            seconds=self.settings.seconds,
            warmup=self.settings.warmup,
            commit=_commit(),
            loops=found,
            missing=self._missing(cases, described["packages"]),
            allocator=dict(self.settings.allocator),
            layouts=self.settings.layouts,
            until=self.settings.until,
            max_rounds=self.settings.max_rounds if self.settings.until else 0,
            gil=environment().get(GIL, ""),
        )

    def _missing(self, cases: Sequence[Case], packages: dict[str, str]) -> dict[str, str]:
        """Report each case that cannot be measured here, with the missing requirement."""
        missing: dict[str, str] = {}
        for case in cases:
            absent = [name for name in case.packages if ABSENT in packages[name]]
            if absent:
                missing[case.name] = f"{', '.join(absent)} is not installed on this Python"
            elif case.cores > len(machine.usable_cores()):
                missing[case.name] = f"it needs {case.cores} cores"
            elif case.service in real_servers.PROGRAMS and (
                reason := real_servers.missing(case.service)
            ):
                missing[case.name] = reason
            elif case.many_files and self._files() < case.connections + SPARE_FILES:
                missing[case.name] = f"a process may open {self._files()} files, too few"
            elif case.mode:
                try:
                    self._client(case)
                except native.BuildError as error:
                    missing[case.name] = without_paths(str(error))
        return missing

    @staticmethod
    def _files() -> int:
        """Return the number of files that a measured process may open."""
        _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return sys.maxsize if hard == resource.RLIM_INFINITY else hard

    def measure(
        self,
        run: Run,
        cases: Sequence[Case],
        loops: Sequence[Loop],
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        """Measure cases into a run, one after the other; keep() is called after each."""
        done = 0
        for together in _together(cases):
            measurable = [case for case in together if case.name not in run.missing]
            if measurable:
                try:
                    self.measure_cases(run, measurable, loops)
                finally:
                    self.end_servers()
            for case in together:
                done += 1
                text = _progress(run, case)
                if case not in measurable:
                    text = f"{case.name}: {run.missing[case.name]}"
                self.say(f"[{done}/{len(cases)}] {text}")
            if measurable:
                keep()

    def measure_cases(self, run: Run, cases: Sequence[Case], loops: Sequence[Loop]) -> None:
        """Measure cases together: all rounds, the loops interleaved."""
        entrants = [
            (case, loop.name)
            for loop in loops
            for case in cases
            if "error" not in run.loops[loop.name] and loop.takes_part(case)
        ]
        entrants += [
            (case, name)
            for case in cases
            for name in case.ceilings
            if "error" not in run.loops.get(name, {"error": ""})
        ]
        failures = dict.fromkeys(entrants, 0)
        number = -1

        def measure(entrant: tuple[Case, str]) -> None:
            case, name = entrant
            run.add(case.name, name, number, self.sample(case, name, number))
            failures[entrant] = 0

        def failed(entrant: tuple[Case, str], failure: Failure) -> None:
            case, name = entrant
            failures[entrant] += 1
            run.fail(case.name, name, without_paths(str(failure)))
            self.say(f"  {case.name}: {name} failed in round {number}: {failure}")

        while any(self._go_on(run, case, number + 1) for case in cases):
            number += 1
            tried = [entrant for entrant in entrants if failures[entrant] < FAILURES]
            take_turns(tried, measure, failed, number)

    def _go_on(self, run: Run, case: Case, done: int) -> bool:
        """Return true if another round follows after `done` rounds."""
        settings = self.settings
        if done < settings.rounds or not settings.until:
            return done < settings.rounds
        ours, base = (run.figures(case.name, name, case.key) for name in (OURS, BASE))
        # If one of the two is not measured, or failed in the last rounds, more rounds can't help.
        recent = {done - 1, done - 2} & ours.keys() & base.keys()
        if done >= settings.max_rounds or not recent:
            return False
        found = intervals.ratio(ours, base)
        return found is None or not found.within(settings.until)

    # ---- one sample ----------------------------------------------------------

    def sample(self, case: Case, name: str, number: int = 0) -> Sample:
        """Measure a loop, or a ceiling, in one round; raises Failure."""
        if case.server:
            layout = number % max(self.settings.layouts, 1)
            asked = None
            if case.kind == "latency":
                asked = max(round(self._peak(case, number) * case.share), 1)
            elif case.kind == "fixed":
                asked = case.pace
            sample = self._network_sample(case, name, layout, asked)
            return sample if asked is None else {**sample, "asked": asked}
        if name == PYTHON:
            return self._own_sample(["limit", case.name], [self.server_core])
        factory = BY_NAME[name].factory
        times = self.settings.times
        # The measured process of a storm starts the clients, and adds its port.
        storm = [str(native.identity().parent), str(self.client_core)] if case.needs_tls else []
        if storm:
            storm += [*self._client(case), str(case.connections), str(case.size)]
        action = {
            "micro": ["micro", factory, case.name],
            "startup": ["startup", factory],
            "children": ["children", factory, case.name, *times],
            "loops": ["threads", factory, case.group, str(case.loops), *times],
            "storm": ["storm", factory, *storm, *times],
        }
        return self._own_sample(action[case.kind], machine.usable_cores()[: case.cores])

    def _own_sample(self, action: list[str], cores: Sequence[int]) -> Sample:
        """Have a process measure itself."""
        sample: Sample = json.loads(self._child(action, cores, self.settings.limit))
        return sample

    def _peak(self, case: Case, number: int) -> float:
        """Return the rate that BASE reaches in a round without a limit."""
        if (case.name, number) not in self.peaks:
            unpaced = replace(case, mode="http", size=1)
            try:
                found = self._network_sample(unpaced, BASE)
            except Failure as error:
                raise Failure(f"the peak rate of {BASE} is not known: {error}") from error
            self.peaks[case.name, number] = found["messages"] / found["seconds"]
        return self.peaks[case.name, number]

    def _client(self, case: Case) -> list[str]:
        """Build the load generator of a case, and return its command; raises BuildError."""
        if case.kind == "memory":
            return [sys.executable, "-I", str(native.HERE / "idle_load.py")]
        program = self.generator
        if case.needs_tls:
            native.identity()
            go = case.mode in ("tls-churn", "tls-storm")
            program = native.go_program() if go else native.tls_program()
        return [str(program), case.mode]

    def _network_sample(
        self, case: Case, name: str, layout: int = 0, rate: int | None = None
    ) -> Sample:
        """Measure one server, at a constant rate if one is given.

        In most cases the server keeps running for the next rounds.
        """
        key = (case.name, name, layout)
        alive = self.alive.pop(key, None) or self._start(case, name, layout)
        try:
            sample = self._load(case, alive, rate)
        except BaseException:
            alive.end()
            raise
        alive.windows += 1
        if case.stays and alive.windows < WINDOWS:
            self.alive[key] = alive
        else:
            alive.end()
        return sample

    def _start(self, case: Case, name: str, layout: int) -> Server:
        """Start a server of a case, or a client, and wait until it is ready."""
        directory = tempfile.TemporaryDirectory(prefix="goloop-bench-")
        try:
            is_client = case.kind == "client"
            if name in CEILINGS:
                command = self._ceiling_command(name, case, Path(directory.name))
            else:
                factory = BY_NAME[name].factory
                words = ["serve", factory, case.server, directory.name, str(layout)]
                words.append(str(case.loops))
                if is_client:
                    words = ["client", factory, case.server, self._address(case)]
                    words.append(str(case.connections))
                command = self._python_command(words)
            if case.service and not is_client:
                Path(directory.name, SERVICE).write_text(self._address(case))
            if case.needs_tls:
                shutil.copy(native.identity(), directory.name)
            return Server(
                "client" if is_client else "server",
                directory,
                command,
                environment(self.settings.allocator),
                _pin(machine.usable_cores()[: case.cores], many_files=case.many_files),
                case.loops,
            )
        except BaseException:
            directory.cleanup()
            raise

    def _other_core(self, case: Case) -> int:
        """Return the core of the end that is not measured."""
        return self.server_core if case.pinning == "same" else self.client_core

    def _service(self, case: Case) -> RealServer | Server:
        """Return the server that a case's processes use; start it for the first of them."""
        core = self._other_core(case)
        key = (f"{case.service}{'-unix' * case.unix}", core)
        if key not in self.services:
            if case.service in real_servers.PROGRAMS:
                self.services[key] = RealServer(case.service, core)
            else:
                self.services[key] = self._echo(core, unix=case.unix)
        return self.services[key]

    def _echo(self, core: int, *, unix: bool) -> Server:
        """Start the echo server in C."""
        directory = tempfile.TemporaryDirectory(prefix="goloop-bench-")
        command = [str(native.c_program("epoll_echo"))]
        command += ["unix", f"{directory.name}/socket"] if unix else ["tcp"]
        return Server("server", directory, command, environment(), _pin([core], many_files=True))

    def _address(self, case: Case) -> str:
        service = self._service(case)
        if isinstance(service, Server):
            return service.address
        return service.path if case.unix else str(service.port)

    def _processes(self, case: Case) -> list[int]:
        """Return the processes of the server that a case's processes use, if they use one."""
        if not case.service:
            return []
        service = self._service(case)
        return server_ports.family_of(
            service.process.pid if isinstance(service, Server) else service.pid
        )

    def end_servers(self) -> None:
        """End the servers that are still running, then those that they use."""
        while self.alive:
            self.alive.popitem()[1].end()
        while self.services:
            self.services.popitem()[1].end()

    def _load(self, case: Case, server: Server, rate: int | None = None) -> Sample:
        """Measure a window: of a client that talks itself, or of a server under load."""
        cores = sorted({self.server_core, self._other_core(case)}) if case.cores == 1 else []
        with contextlib.ExitStack() as stack:
            talker: Child = server
            if case.kind == "client":
                server.say(" ".join(self.settings.times))
            else:
                size = str(max(case.size, 1)) + ("" if rate is None else f"@{rate}")
                command = [*self._client(case), server.address, str(case.connections)]
                command += [size, *self.settings.times]
                variables = environment(allocator.STEADY)  # the generator must not vary
                pin = _pin([self._other_core(case)], many_files=case.many_files)
                talker = stack.enter_context(Child("load generator", command, variables, pin))
            sample = windows.measure(
                server, talker, self._processes(case), cores, self.settings.limit
            )
        grown = sample.pop("grown")
        if case.kind == "memory":
            return {"messages": sample["messages"], "bytes": grown / sample["messages"]}
        return sample

    # ---- processes -----------------------------------------------------------

    def _python_command(self, arguments: list[str]) -> list[str]:
        # -P keeps the working directory off the module path: see child.py.
        return [self.python, "-P", "-c", LAUNCH, str(native.ROOT), *arguments]

    def _ceiling_command(
        self, name: str, case: Case | None = None, directory: Path = Path()
    ) -> list[str]:
        """Return the command of a ceiling, for a case if one is given."""
        if name == "gnet":
            return [str(native.go_program()), "serve"]
        if name == "c-uring":
            return [str(native.uring_program())]
        server = "" if case is None else case.server
        if server.startswith("pipe-"):
            fifo = directory / "fifo"
            os.mkfifo(fifo)
            return [str(native.c_program("epoll_pipe")), server.removeprefix("pipe-"), str(fifo)]
        command = [str(native.c_program("epoll_echo"))]
        if server == "unix":
            return [*command, "unix", str(directory / "socket")]
        return [*command, CEILING_MODES.get(server, "tcp")]

    def _child(self, arguments: list[str], cores: Sequence[int] | None, limit: float) -> str:
        """Run a measuring process to its end and return the last line it printed."""
        try:
            done = subprocess.run(
                self._python_command(arguments),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                env=environment(self.settings.allocator),
                preexec_fn=None if cores is None else _pin(cores),
                timeout=limit,
            )
        except subprocess.TimeoutExpired as error:
            raise Failure(f"did not end within {limit:.0f} s") from error
        if done.returncode < 0:
            raise Failure(told(done.returncode, text_last_line(done.stderr)))
        if done.returncode != 0:
            raise Failure(text_last_line(done.stderr) or ending(done.returncode))
        return text_last_line(done.stdout)


def _why(loop: Loop, error: str) -> str:
    """Reword the error of a missing package; return every other error unchanged."""
    package = loop.distributions[0] if loop.distributions else ""
    if error == f"ModuleNotFoundError: No module named '{package}'":
        return f"{package} is not installed, or does not install, on this Python"
    return without_paths(error)


def environment(variables: Mapping[str, str] = NOTHING) -> dict[str, str]:
    """Return the environment of measured processes, with an allocator's setting.

    Settings that would change the measurement are removed: allocator tuning (a loop with
    large blocks may become three times faster or slower), debug modes, paths, and goloop's
    own.  The run chooses and records the allocator's settings, and PYTHON_GIL.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD", "GOGC", "GODEBUG"))
        and not name.startswith(("GOMAXPROCS", "GOLOOP_"))
        and not (name.startswith("PYTHON") and name not in ("PYTHON", GIL))
    }
    return {**kept, **variables}


def _together(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """Group the cases that take part in the same rounds."""
    for _, found in groupby(cases, lambda case: case.group if case.kind == "loops" else case.name):
        yield list(found)


def without_paths(sentence: str) -> str:
    """Cut absolute paths down to their last part, so that a report names no private path."""
    return re.sub(r"(?<![\w.:/])(?:/[\w.@+-]+)*/([\w.@+-]+)", r"\1", sentence)


def _pin(cores: Sequence[int], *, many_files: bool = False) -> Callable[[], None]:
    """Pin between fork and exec, so that every thread of the program inherits it."""

    def pin() -> None:
        os.sched_setaffinity(0, cores)
        if many_files:
            _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    return pin


def _commit() -> str:
    """Return the commit of the tree, with a plus sign where files differ from it."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(native.HERE), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        head = git("rev-parse", "--short", "HEAD")
        return head + "+" * bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _progress(run: Run, case: Case) -> str:
    """Write one line about a case that has just been measured."""
    if quiet.is_all_disturbed(run, case.name):
        return f"{case.name}: {quiet.NO_FIGURES}"
    parts = []
    for name in run.samples.get(case.name, {}):
        figures = run.figures(case.name, name, case.key).values()
        reached = short(median(figures)) if figures else "does not reach the rate"
        parts.append(f"{name} {reached}")
    return f"{case.name} ({case.unit}): " + ", ".join(parts)


def to_stderr(line: str) -> None:
    """Print progress where results do not go."""
    print(line, file=sys.stderr, flush=True)
