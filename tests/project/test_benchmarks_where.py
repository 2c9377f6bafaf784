"""`python -m benchmarks where`: perf's samples, by place and loop."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import where
from benchmarks.where import GO, KERNEL, OPENSSL, OWN, PYTHON, REST

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("dso", "symbol", "place"),
    [
        ("[kernel.kallsyms]", "tcp_sendmsg", KERNEL),
        ("libcrypto.so.3", "0x0000000000123456", OPENSSL),
        ("libssl.so.3", "SSL_read", OPENSSL),
        ("python3.14", "PyObject_GetAttr", PYTHON),
        ("_ssl.cpython-314-x86_64-linux-gnu.so", "SSL_read", PYTHON),
        ("libgoloop.so.1", "runtime.exitsyscall", GO),
        ("libgoloop.so.1", "github.com/goloop/goloop/netloop.(*Reactor).Turn", OWN),
        ("_core.cpython-314-x86_64-linux-gnu.so", "stream_deliver_bytes", OWN),
        ("loop.cpython-314-x86_64-linux-gnu.so", "uv__io_poll", OWN),
        ("libc.so.6", "malloc", REST),
        ("[vdso]", "__vdso_clock_gettime", REST),
    ],
)
def test_a_sample_has_its_place(dso: str, symbol: str, place: str) -> None:
    assert where.place_of(dso, symbol) == place


def test_samples_are_counted_by_place() -> None:
    report = """
# Samples: 12
     7;[kernel.kallsyms]  ;[k] tcp_sendmsg
     3;libgoloop.so.1     ;[.] runtime.exitsyscall
     1;libgoloop.so.1     ;[.] github.com/goloop/goloop/netloop.(*Reactor).Turn
     1;_core.so           ;[.] stream_deliver_bytes
"""
    assert where.read_samples(report) == Counter({KERNEL: 7, GO: 3, OWN: 2})
    assert not where.read_samples("no samples;here;\n")


@pytest.mark.skipif(shutil.which("perf") is None, reason="there is no perf")
def test_each_place_has_its_part_of_the_servers_time() -> None:
    command = "-m benchmarks where --cases protocol-1k-x4 --loops goloop --rounds 1 --seconds 0.2"
    done = subprocess.run(
        [sys.executable, *command.split()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if "Permission" in done.stderr or "perf_event_paranoid" in done.stderr:
        pytest.skip("perf may not look at processes here")
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split()[0] == "protocol-1k-x4"
    rows = [row for row in rows if row.startswith("goloop ")]
    [whole, *parts] = map(float, rows[0].split()[1:])
    assert len(parts) == len(where.PLACES)
    assert abs(sum(parts) - whole) < 0.05
    assert parts[where.PLACES.index(KERNEL)] > whole / 4


def test_without_perf_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    looking = object.__new__(where.Sampling)
    with pytest.raises(where.NoPerf, match="there is no perf"):
        looking.look(None, [], [])  # type: ignore[arg-type]
