"""Runs anyio's own test suite on goloop, beside asyncio.

    python tests/external/anyio_suite.py [--record] [--keep FOLDER] [PYTEST ARGUMENT ...]

The interpreter needs goloop, and the packages of anyio's "test" group (pytest, hypothesis,
trustme, psutil, pytest-mock, pytest-timeout, blockbuster, coverage).  The sources of the
installed anyio's version are fetched with pip, and its conftest gets two more backends:
goloop's loop as it is, and in debug mode.  Prints the outcomes by backend.

A test that passes on asyncio and not on goloop fails the run, unless DIFFERENT names it;
and so does one that DIFFERENT names and that passes.  A failure on both is the machine's
matter.  --record stores the result in tests/external/proof.json, for the table in README.md.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import re
import socket
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import proof

BACKENDS = """
import goloop as _goloop

asyncio_params = [
    pytest.param(("asyncio", {"loop_factory": _goloop.new_event_loop}), id="goloop"),
    pytest.param(
        ("asyncio", {"debug": True, "loop_factory": _goloop.new_event_loop}),
        id="goloop+debug",
    ),
"""


def fetch(folder: Path) -> Path:
    """The unpacked sources of the anyio that is installed, with goloop's backends."""
    version = importlib.metadata.version("anyio")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary=:all:"]
    subprocess.run([*command, "-d", str(folder), f"anyio=={version}"], check=True)
    (archive,) = folder.glob("anyio-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    root = folder / f"anyio-{version}"
    conftest = root / "tests" / "conftest.py"
    text = conftest.read_text()
    assert text.count("asyncio_params = [\n") == 1
    conftest.write_text(text.replace("asyncio_params = [\n", BACKENDS.lstrip("\n")))
    return root


OUTCOME = re.compile(
    r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (tests/\S+::.*?)(?: - .*)?$", re.M
)
BACKEND = re.compile(r"(?<=[\[-])(goloop\+debug|goloop|asyncio\+eager|asyncio)(?=[\]-])")

# The compared backends: goloop's, each with asyncio's.
CONTROL, OURS = "asyncio", ("goloop", "goloop+debug")
GOOD = {"PASSED", "XFAIL"}

# Tests that pass on asyncio and not on goloop, by intention, with the reason.
DIFFERENT: dict[str, str] = {}


def outcomes(root: Path, arguments: list[str]) -> dict[tuple[str, str], str]:
    """Return the outcome of each test, by its name without the backend, and by the backend."""
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *arguments], cwd=root, capture_output=True, text=True, check=False
    )
    found: dict[tuple[str, str], str] = {}
    for outcome, test in OUTCOME.findall(done.stdout):
        backend = BACKEND.search(test)
        key = (BACKEND.sub("*", test), backend[1] if backend else "other")
        # A test that passed and whose teardown failed is reported twice.
        if found.get(key) not in ("FAILED", "ERROR"):
            found[key] = outcome
    if not found:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
    return found


def selection() -> list[str]:
    """Both loops, and no IPv6 where this machine gives localhost no such address."""
    wanted = "(asyncio or goloop)"
    try:
        socket.getaddrinfo("localhost", 0, family=socket.AF_INET6)
    except OSError:
        print("localhost has no IPv6 address here: the tests with ipv6 are left out")
        wanted += " and not ipv6 and not dualstack"
    return ["-k", wanted]


def worse(found: dict[tuple[str, str], str]) -> set[tuple[str, str]]:
    """Return the tests that pass on asyncio and not on goloop."""
    return {
        (test, backend)
        for (test, backend), outcome in found.items()
        if backend in OURS and outcome not in GOOD and found.get((test, CONTROL)) in GOOD
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="where the sources go; default: nowhere")
    parser.add_argument("--record", action="store_true", help="stores the result")
    args, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = fetch(args.keep or Path(temporary))
        found = outcomes(root, rest or selection())
        differing = worse(found)
        for test, backend in sorted(differing):
            # Run the test alone, without the leftovers of earlier tests.
            print(f"again, alone: {test} on {backend}", flush=True)
            names = [test.replace("*", each) for each in (CONTROL, backend)]
            found.update(outcomes(root, names))
        differing = worse(found)
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for (_, backend), outcome in found.items():
        counts[backend][outcome] += 1
    for backend, counted in sorted(counts.items()):
        print(f"{backend:15}", dict(counted))
    for test, backend in sorted(differing):
        print(f"fails on {backend}: {test}  ({DIFFERENT.get(test, 'not expected')})")
    for (test, backend), outcome in sorted(found.items()):
        if backend == CONTROL and outcome in ("FAILED", "ERROR"):
            print(f"fails on asyncio: {test}")
    names_of_worse = {test for test, _ in differing}
    surprising = {
        test for test in DIFFERENT if (test, CONTROL) in found and test not in names_of_worse
    }
    for test in sorted(surprising):
        print(f"passes, though it is expected to differ: {test}")
    good = not surprising and names_of_worse <= set(DIFFERENT)
    if args.record:
        passed = sum(found[key] in GOOD for key in found if key[1] == CONTROL)
        version = importlib.metadata.version("anyio")
        proof.record_suite("anyio", version, passed, len(names_of_worse), good=good)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
