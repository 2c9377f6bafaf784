"""`python -m benchmarks where`: perf's samples, by place and loop."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks import where
from benchmarks.where import GO, KERNEL, OPENSSL, OWN, PYTHON, REST


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
