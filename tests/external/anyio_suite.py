"""Runs anyio's own test suite on goloop, beside asyncio.

    python tests/external/anyio_suite.py [--keep FOLDER] [PYTEST ARGUMENT ...]

The interpreter needs goloop, and what anyio's "test" group names (pytest, hypothesis,
trustme, psutil, pytest-mock, pytest-timeout, blockbuster, coverage).  The sources of the
installed anyio's version are fetched with pip, and its conftest gets two more backends:
goloop's loop as it is, and in debug mode.  Prints the outcomes by backend.
"""

from __future__ import annotations

import argparse
import collections
import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="where the sources go; default: nowhere")
    args, rest = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = fetch(args.keep or Path(temporary))
        command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
        command += ["-k", "asyncio or goloop", *rest]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for line in done.stdout.splitlines():
        found = re.match(r"(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+)", line)
        if not found:
            continue
        backend = re.search(r"\[(goloop\+debug|goloop|asyncio\+eager|asyncio)\b", line)
        counts[backend[1] if backend else "other"][found[1]] += 1
        if found[1] in ("FAILED", "ERROR"):
            print(line)
    for backend, outcomes in sorted(counts.items()):
        print(f"{backend:15}", dict(outcomes))
    if not counts:
        print(done.stdout[-3000:], done.stderr[-3000:])
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
