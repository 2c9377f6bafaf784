"""Runs other projects' own test suites on asyncio and on goloop, and compares the outcomes.

    python tests/external/suites.py [--install] [--record] [--keep FOLDER] [--from REPOSITORY]
        NAME ... [-- PYTEST ARGUMENT ...]

NAME is one of SUITES.  The interpreter needs goloop, the project, and the packages that its tests
import: --install installs these into it, so give it an environment of its own.  The sources of the
installed version are fetched with pip, or with git if pip's have no tests (--from: from another
repository); the tests run against the installed package.  They get goloop's loops by the event loop
policy, which a plugin sets.

A test that passes on asyncio and not on goloop, when run alone too, fails the run, unless the
suite's `different` names it.  A test that `different` names and that passes fails the run, too.  A
test that fails on both loops depends on the machine, and does not count.
--record stores the result in tests/external/proof.json, for the table in README.md.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import proof


@dataclasses.dataclass(frozen=True)
class Suite:
    """A project, and how its tests are run."""

    needs: str
    """Packages that its tests import, for pip."""
    arguments: str = ""
    """Arguments of pytest, beside the project's configuration without its `addopts`."""
    tests: str = "tests"
    """Tests to run if the command line names none."""
    package: str = ""
    """The package's folder in the sources, which is removed so that the installed one is tested."""
    repository: str = ""
    """The address of a git repository, if pip's sources have no tests."""
    setup: str = ""
    """Python that runs before the tests, as in the project's own test runner."""
    builds: str = "setuptools wheel"
    """Packages that pip needs to unpack the sources."""
    different: dict[str, str] = dataclasses.field(default_factory=dict)
    """Tests that differ by design, with the reason."""


SUITES = {
    "aiohttp": Suite(
        "aiohttp[speedups] pytest-mock pytest-cov pytest-xdist pytest-codspeed freezegun trustme"
        " proxy.py blockbuster isal zlib_ng python-on-whales setuptools-git",
        "-m 'not dev_mode and not autobahn and not internal' --ignore-glob=*benchmarks*"
        f" --ignore=tests/isolated --ignore=tests/autobahn -n {os.cpu_count() or 1}",
        package="aiohttp",
        different={
            "tests/test_web_functional.py::test_keepalive_expires_on_time[pyloop]": (
                "patches loop.time() and expects the loop's timers to go by it"
            )
        },
    ),
    # Against a PostgreSQL: its own, of `initdb` and `postgres`, which do not run as root, or that
    # of PGHOST, PGPORT and PGUSER.
    "asyncpg": Suite("asyncpg distro", package="asyncpg", builds="setuptools wheel Cython"),
    "asyncssh": Suite(
        "asyncssh[bcrypt] pyOpenSSL python-pkcs11 fido2",
        "--ignore=tests/test_connection.py",  # hangs on asyncio, too
        package="asyncssh",
    ),
    "httpx": Suite(
        "httpx[brotli,http2,socks,zstd] chardet trio trustme uvicorn cryptography",
        "-p no:asyncio -k 'not trio'",
        package="httpx",
        builds="hatchling hatch-fancy-pypi-readme",
    ),
    # Against a Redis at localhost:6379.
    "redis": Suite(
        "redis pytest-asyncio pytest-cov numpy redis-entraid pybreaker aiohttp xxhash cryptography"
        " opentelemetry-sdk",
        "-m 'not redismod and not onlycluster and not ssl and not cp_integration and"
        " not multidb_integration and not replica' --ignore=tests/test_asyncio/test_scenario"
        " --ignore=tests/test_asyncio/test_cluster.py --ignore=tests/test_asyncio/test_search.py",
        tests="tests/test_asyncio",
        package="redis",
        builds="hatchling",
    ),
    "starlette": Suite(
        "starlette[full] httpx2 opentelemetry-sdk pytest-codspeed trio typing_extensions",
        "-p no:asyncio -k 'not trio'",
        package="starlette",
        builds="hatchling",
    ),
    "tornado": Suite(
        "tornado pycurl",
        "-p no:asyncio -p no:logging -o python_files=*_test.py",
        tests="tornado/test",
        setup='import logging\n\nlogging.getLogger("tornado.access").setLevel(logging.CRITICAL)\n',
    ),
    "uvicorn": Suite(
        "uvicorn[standard] pytest-mock pytest-xdist[psutil] pytest-codspeed trustme cryptography"
        " httpx2 a2wsgi wsproto",
        "-p no:asyncio -k 'not uvloop'",
        package="uvicorn",
        builds="hatchling",
        different={
            "tests/test_compat.py::test_asyncio_run__default_loop_factory": (
                "expects the default loop to be asyncio's own, which the policy changes"
            )
        },
    ),
    "websockets": Suite(
        "websockets mitmproxy python-socks[asyncio] trio werkzeug",
        "-p no:asyncio --ignore=tests/trio",
        repository="https://github.com/python-websockets/websockets",
        package="src",
        different={
            f"tests/asyncio/test_connection.py::{side}ConnectionTests::test_{which}_address": (
                "puts a get_extra_info() into asyncio.Transport; goloop's transports have their own"
            )
            for side in ("Client", "Server")
            for which in ("local", "remote")
        },
    ),
}

OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+::.*?)(?: - .*)?$", re.M)
GOOD = {"PASSED", "XFAIL"}
PIP = (sys.executable, "-m", "pip")


def install(name: str, suite: Suite) -> None:
    """Install the project and its tests' requirements into this interpreter's environment."""
    wanted = [name, *suite.needs.split(), *suite.builds.split(), "pytest", "pytest-timeout"]
    subprocess.run([*PIP, "install", "-q", *wanted], check=True)


def fetch(name: str, suite: Suite, folder: Path, repository: str | None) -> Path:
    """The sources of the installed version, without the package itself."""
    version = importlib.metadata.version(name)
    root = folder / f"{name}-{version}"
    if suite.repository:
        clone = ["git", "-c", "advice.detachedHead=false", "clone", "-q", f"--branch={version}"]
        subprocess.run([*clone, repository or suite.repository, str(root)], check=True)
    else:
        unpack(name, version, folder)
    if suite.package:
        shutil.rmtree(root / suite.package)
    plugin = Path(__file__).with_name("suite_plugin.py").read_text()
    (root / "goloop_suite.py").write_text(plugin + suite.setup)
    return root


def unpack(name: str, version: str, folder: Path) -> None:
    """A version's sources, as pip has them."""
    options = ["-q", "--no-deps", "--no-binary=:all:", "--no-build-isolation", "-d", str(folder)]
    subprocess.run([*PIP, "download", *options, f"{name}=={version}"], check=True)
    (archive,) = folder.glob(f"{name}-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def outcomes(suite: Suite, root: Path, loop: str, asked: list[str]) -> dict[str, str]:
    """Return the outcome of each test on that loop."""
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
    command += ["-o", "addopts=", "-p", "goloop_suite", "--timeout=60"]
    log = root / f"{loop}.log"
    command += shlex.split(suite.arguments)
    with log.open("w") as output:
        subprocess.run(
            [*command, *asked],
            cwd=root,
            # Some tests do not expect the warning that a loop is blocked, on a busy machine.
            env={**os.environ, "SUITE_LOOP": loop, "GOLOOP_WATCHDOG": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            start_new_session=True,  # some tests send signals around
        )
    said = log.read_text(errors="replace")
    found: dict[str, str] = {}
    for outcome, test in OUTCOME.findall(said):
        # A test that passed and whose teardown failed is reported twice.
        if found.get(test) not in ("FAILED", "ERROR"):
            found[test] = outcome
    if not found:
        raise SystemExit(said[-3000:])
    return found


def compare(name: str, root: Path, asked: list[str], *, recorded: bool) -> bool:
    """Print and record outcomes that differ; return true if all are as expected."""
    suite = SUITES[name]
    tests = asked or suite.tests.split()
    control, ours = (outcomes(suite, root, loop, tests) for loop in ("asyncio", "goloop"))
    for loop, found in (("asyncio", control), ("goloop", ours)):
        print(f"{name} on {loop}: {dict(collections.Counter(found.values()))}", flush=True)
    worse = [test for test in control if control[test] in GOOD and ours.get(test) not in GOOD]
    for test in sorted(worse):
        # Run the test alone, without the leftovers of earlier tests.
        if outcomes(suite, root, "goloop", [test]).get(test) in GOOD:
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
        version = importlib.metadata.version(name)
        proof.record_suite(name, version, passed, len(worse), good=good)
    return good


def main() -> int:
    """Runs the named suites; returns 1 if one is not as expected."""
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
        if args.install:
            install(name, SUITES[name])
        with tempfile.TemporaryDirectory() as temporary:
            folder = (args.keep or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            root = fetch(name, SUITES[name], folder, args.repository)
            good = compare(name, root, asked.split(), recorded=args.record) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
