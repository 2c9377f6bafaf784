"""Runs other projects' own test suites on asyncio and on goloop, and compares the outcomes.

    python tests/external/suites.py [--install] [--record] [--keep FOLDER] [--from REPOSITORY]
        NAME ... [-- PYTEST ARGUMENT ...]

NAME is one of SUITES (suite_table.py).  The interpreter needs goloop, the project, and the packages
that its tests import: --install installs these into it.  Give each suite an environment of its
own, because pytest loads the plugins of all suites.  The sources of the installed version are
fetched with pip, or with git if pip's have no tests (--from: from another repository); the tests
run against the installed package.  They get goloop's loops by the event loop policy, which a plugin
sets.

Servers that a suite needs (suite_servers.py) are started for it on free ports, and end with the
run, also if it is killed.  A line names a server that is not installed, and its tests do not run.

A test that passes on asyncio and not on goloop, when run alone too, fails the run, unless the
suite's `different` names it.  A test that `different` names and that passes fails the run, too.  A
test that fails on both loops depends on the machine, and does not count.
--record stores the result with the date in tests/external/proof.json, for the table in README.md.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import importlib.metadata
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from suite_servers import SERVERS
from suite_table import SUITES, Service, Suite

import proof
from benchmarks import real_servers

OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+::.*?)(?: - .*)?$", re.M)
GOOD = {"PASSED", "XFAIL"}
PIP = (sys.executable, "-m", "pip")


def install(name: str, suite: Suite) -> None:
    """Install the project and its tests' requirements into this interpreter's environment."""
    project = [f"{name}=={suite.version}", *suite.needs.split(), *suite.builds.split()]
    subprocess.run([*PIP, "install", "-q", *project, "pytest", "pytest-timeout"], check=True)


def fetch(name: str, suite: Suite, folder: Path, repository: str | None) -> Path:
    """The sources of the installed version, without the package itself."""
    version = importlib.metadata.version(name)
    if suite.repository:
        root = folder / f"{name}-{version}"
        tag = suite.tag.format(version=version)
        clone = ["git", "-c", "advice.detachedHead=false", "clone", "-q", f"--branch={tag}"]
        subprocess.run([*clone, repository or suite.repository, str(root)], check=True)
    else:
        root = unpack(name, version, folder)
    if suite.package:
        shutil.rmtree(root / suite.package)
    plugin = Path(__file__).with_name("suite_plugin.py").read_text()
    (root / "goloop_suite.py").write_text(plugin + suite.setup)
    return root


def unpack(name: str, version: str, folder: Path) -> Path:
    """A version's sources, as pip has them; returns their folder."""
    options = ["-q", "--no-deps", "--no-binary=:all:", "--no-build-isolation", "-d", str(folder)]
    # Some build backends look for their program on PATH.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    subprocess.run(
        [*PIP, "download", *options, f"{name}=={version}"],
        env={**os.environ, "PATH": path},
        check=True,
    )
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def usable_services(name: str, suite: Suite) -> list[Service]:
    """Return the services whose servers are installed; print a line for each other one."""
    found = []
    for service in suite.services:
        if reason := real_servers.missing(service.server, SERVERS):
            print(f"{name}: without {service.server}: {reason}", flush=True)
        else:
            found.append(service)
    return found


def edit(root: Path, service: Service, replaced: dict[str, str]) -> None:
    """Write a server's address into the tests; raises SystemExit if its place is not found."""
    for file, edits in service.edits.items():
        text = (root / file).read_text()
        for old, new in edits.items():
            if old not in text:
                raise SystemExit(f"{file} has no {old!r} to be replaced by the server's address")
            text = text.replace(old, with_address(new, replaced))
        (root / file).write_text(text)


def with_address(text: str, replaced: dict[str, str]) -> str:
    """Return a text with {port} and {path} replaced; other braces stay."""
    for name, value in replaced.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@contextlib.contextmanager
def running(services: list[Service], root: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Start servers; yields pytest's arguments and the environment variables with addresses."""
    arguments: list[str] = []
    variables: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        for service in services:
            if not service.started:
                continue
            server = real_servers.RealServer(service.server, None, SERVERS)
            stack.callback(server.end)
            replaced = {"port": str(server.port), "path": server.path}
            edit(root, service, replaced)
            if service.prepare:
                program, *words = shlex.split(with_address(service.prepare, replaced))
                subprocess.run([real_servers.found(program), *words], check=True)
            arguments += shlex.split(with_address(service.arguments, replaced))
            for name, text in service.variables.items():
                variables[name] = with_address(text, replaced)
        yield arguments, variables


def outcomes(
    suite: Suite,
    root: Path,
    loop: str,
    asked: list[str],
    variables: dict[str, str],
    *,
    alone: bool,
) -> dict[str, str]:
    """Return the outcome of each test on that loop; raises SystemExit without any.

    `asked` are arguments of pytest beside the suite's, `variables` environment variables. A crash
    raises SystemExit, too, but not of a test that is run `alone`.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
    command += ["-o", "addopts=", "-p", "goloop_suite", "--timeout=60"]
    log = root / f"{loop}.log"
    command += shlex.split(suite.arguments)
    with log.open("w") as output:
        done = subprocess.run(
            [*command, *asked],
            cwd=root,
            # Some tests do not expect the warning that a loop is blocked, on a busy machine.
            env={
                **os.environ,
                **variables,
                "PATH": real_servers.search_path(),  # some tests start servers
                "SUITE_LOOP": loop,
                "GOLOOP_WATCHDOG": "0",
            },
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            start_new_session=True,  # some tests send signals around
            preexec_fn=real_servers.ends_with_parent(signal.SIGKILL),
        )
    said = log.read_text(errors="replace")
    found: dict[str, str] = {}
    for outcome, test in OUTCOME.findall(said):
        # A test that passed and whose teardown failed is reported twice.
        if found.get(test) not in ("FAILED", "ERROR"):
            found[test] = outcome
    # pytest has ended with 0 or 1 after the last test.
    if not found or (done.returncode not in (0, 1) and not alone):
        raise SystemExit(f"{said[-3000:]}\npytest ended with status {done.returncode}")
    return found


def compare(
    name: str, root: Path, services: list[Service], asked: list[str], *, recorded: bool
) -> bool:
    """Print and record outcomes that differ; return true if all are as expected."""
    suite = SUITES[name]
    tests = asked or suite.tests.split()
    with running(services, root) as (arguments, variables):

        def run(loop: str, tests: list[str], *, alone: bool = False) -> dict[str, str]:
            return outcomes(suite, root, loop, [*arguments, *tests], variables, alone=alone)

        control, ours = (run(loop, tests) for loop in ("asyncio", "goloop"))
        for loop, found in (("asyncio", control), ("goloop", ours)):
            print(f"{name} on {loop}: {dict(collections.Counter(found.values()))}", flush=True)
        if not any(outcome in GOOD for outcome in control.values()):
            raise SystemExit(f"{name}: no test passes on asyncio")
        worse = [test for test in control if control[test] in GOOD and ours.get(test) not in GOOD]
        for test in sorted(worse):
            # Run the test alone, without the leftovers of earlier tests.
            if run("goloop", [test], alone=True).get(test) in GOOD:
                print(f"passes alone: {test}")
                worse.remove(test)
    for test in worse:
        reason = suite.different.get(test, "not expected")
        print(f"{ours.get(test, 'MISSING')} {test}  ({reason})")
    surprising = {test for test in suite.different if test in control} - set(worse)
    for test in sorted(surprising):
        print(f"passes, though it is expected to differ: {test}")
    good = not surprising and set(worse) <= set(suite.different)
    if recorded:
        passed = sum(outcome in GOOD for outcome in control.values())
        servers = [real_servers.version(each.server, SERVERS) for each in services]
        version = importlib.metadata.version(name)
        proof.record_suite(name, version, passed, len(worse), servers, good=good)
    return good


def main() -> int:
    """Runs the named suites; returns 1 if one is not as expected."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    own, _, asked = " ".join(sys.argv[1:]).partition(" -- ")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=SUITES)
    parser.add_argument("--install", action="store_true", help="what the tests import, by pip")
    parser.add_argument("--keep", type=Path, help="where the sources go; default: nowhere")
    parser.add_argument("--from", dest="repository", help="what git clones, of one suite")
    parser.add_argument("--record", action="store_true", help="stores the result")
    args = parser.parse_args(own.split())
    good = True
    for name in args.names:
        services = usable_services(name, SUITES[name])
        if SUITES[name].services and not services:
            print(f"{name}: not run", flush=True)
            continue
        if args.install:
            install(name, SUITES[name])
        with tempfile.TemporaryDirectory() as temporary:
            folder = (args.keep or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            root = fetch(name, SUITES[name], folder, args.repository)
            good = compare(name, root, services, asked.split(), recorded=args.record) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
