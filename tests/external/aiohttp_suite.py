"""Runs aiohttp's own test suite on asyncio and on goloop, and compares the outcomes.

    python tests/external/aiohttp_suite.py [--keep FOLDER] [PYTEST ARGUMENT ...]

The interpreter needs goloop, aiohttp, and what the tests import: pytest, pytest-mock,
pytest-timeout, pytest-cov, pytest-xdist, pytest-codspeed, freezegun, trustme, proxy.py,
blockbuster, isal, zlib_ng, python-on-whales, setuptools-git.  The sources of the installed
aiohttp's version are fetched with pip; the tests run against the installed package.

A test that passes on asyncio and not on goloop fails the run, unless DIFFERENT names it;
and so does one that DIFFERENT names and that passes.  What fails on both is the machine's
matter.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

# Tests that differ by design, with the reason.
DIFFERENT: dict[str, str] = {
    "tests/test_client_functional.py::test_upload_tracker_progress[pyloop]": (
        "counts what get_write_buffer_size() does not, right after a write; "
        "goloop sends at the end of the turn"
    ),
    "tests/test_web_functional.py::test_keepalive_expires_on_time[pyloop]": (
        "patches loop.time() and expects the loop's timers to go by it"
    ),
}

# aiohttp's tests ask asyncio for a new loop, and thereby the policy.
PLUGIN = """
import os

if os.environ["GOLOOP_SUITE_LOOP"] == "goloop":
    from goloop._internal.process.policy import set_policy

    set_policy()
"""

OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+::.*?)(?: - .*)?$", re.M)


def fetch(folder: Path) -> Path:
    """The unpacked sources of the aiohttp that is installed, without the package itself."""
    version = importlib.metadata.version("aiohttp")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary=:all:"]
    subprocess.run(
        [*command, "--no-build-isolation", "-d", str(folder), f"aiohttp=={version}"], check=True
    )
    (archive,) = folder.glob("aiohttp-*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    root = folder / f"aiohttp-{version}"
    shutil.rmtree(root / "aiohttp")
    (root / "goloop_suite.py").write_text(PLUGIN)
    return root


def outcomes(root: Path, loop: str, arguments: list[str]) -> dict[str, str]:
    """What became of each test on that loop."""
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
    # Without aiohttp's own options, which would import the programs of tests/isolated.
    command += ["-o", "addopts=", "-m", "not dev_mode and not autobahn and not internal"]
    command += ["--ignore-glob=*benchmarks*", "--ignore=tests/isolated", "--ignore=tests/autobahn"]
    command += ["-n", str(os.cpu_count() or 1)]
    command += ["-p", "goloop_suite", "--timeout=60", *(arguments or ["tests"])]
    log = root / f"{loop}.log"
    with log.open("w") as output:
        subprocess.run(
            command,
            cwd=root,
            env={**os.environ, "GOLOOP_SUITE_LOOP": loop},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            start_new_session=True,  # the tests send signals around
        )
    said = log.read_text(errors="replace")
    found = {test: outcome for outcome, test in OUTCOME.findall(said)}
    print(f"{loop:8} {(said.strip().splitlines() or ['nothing'])[-1]}", flush=True)
    if not found:
        raise SystemExit(said[-3000:])
    return found


def main() -> int:
    """Prints the tests whose outcomes differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="where the sources go; default: nowhere")
    args, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = fetch(args.keep or Path(temporary))
        control = outcomes(root, "asyncio", rest)
        ours = outcomes(root, "goloop", rest)
        good = {"PASSED", "XFAIL"}
        worse = {
            test
            for test, outcome in control.items()
            if outcome in good and ours.get(test) not in good
        }
        for test in sorted(worse):
            # Alone: what an earlier test left behind is no difference.
            print(f"again, alone: {test}", flush=True)
            if outcomes(root, "goloop", [test]).get(test) in good:
                worse.remove(test)
    for test in sorted(worse):
        print(f"{ours.get(test, 'MISSING')} {test}  ({DIFFERENT.get(test, 'not expected')})")
    surprising = {test for test in DIFFERENT if test in control and test not in worse}
    for test in sorted(surprising):
        print(f"passes, though it is expected to differ: {test}")
    return int(bool(surprising or worse - set(DIFFERENT)))


if __name__ == "__main__":
    sys.exit(main())
