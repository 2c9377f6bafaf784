"""Probes (USDT) for bpftrace, perf and gdb: in the files, and where something happens."""

from __future__ import annotations

import os
import platform
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import goloop._core as _core

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = [
    pytest.mark.goloop_only("asyncio's loop has no probes"),
    pytest.mark.skipif(
        sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
        reason="the notes are made for Linux on two kinds of machines",
    ),
]

NOP = {"x86_64": b"\x90", "aarch64": b"\x1f\x20\x03\xd5"}
# The sizes of the arguments, which are unsigned.
SIZES = {"task_step": (8, 8), "accept": (4, 4), "iteration_slow": (4, 8), "late_write": (4, 8)}


class Probe(NamedTuple):
    """A note of .note.stapsdt, with the code at its place."""

    name: str
    semaphore: int
    arguments: list[str]
    code: bytes


def probes(path: Path) -> list[Probe]:
    """Return the probes of a file, of provider goloop."""
    data = path.read_bytes()
    (headers,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, headers + n * size) for n in range(count)]
    found = []
    for name, kind, _, _, at, length, *_ in sections:
        begins = sections[names][4] + name
        if kind == 7 and data.startswith(b".note.stapsdt\0", begins):
            end = at + length
            while at < end:
                owner, described, version = struct.unpack_from("<III", data, at)
                assert (data[at + 12 : at + 12 + owner], version) == (b"stapsdt\0", 3)
                at += 12 + (owner + 3) // 4 * 4
                place, base, semaphore = struct.unpack_from("<QQQ", data, at)
                texts = data[at + 24 : at + described].split(b"\0")
                provider, probe, arguments = (text.decode() for text in texts[:3])
                assert provider == "goloop"
                assert base == base_section(data, sections, names)
                code = in_memory(data, place)
                found.append(Probe(probe, semaphore, arguments.split(), code))
                at += (described + 3) // 4 * 4
    return found


def base_section(data: bytes, sections: list[tuple[int, ...]], names: int) -> int:
    """Return the address of .stapsdt.base in memory."""
    [address] = [
        section[3]
        for section in sections
        if data.startswith(b".stapsdt.base\0", sections[names][4] + section[0])
    ]
    return address


def in_memory(data: bytes, address: int) -> bytes:
    """Return the bytes at an address of the file's executable segment."""
    (headers,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for n in range(count):
        kind, flags, at, begins, _, length = struct.unpack_from("<IIQQQQ", data, headers + n * size)
        if kind == 1 and flags & 1 and begins <= address < begins + length:
            return data[at + address - begins :][:8]
    raise AssertionError(f"{address:#x} is in no code")


def files() -> list[Path]:
    return [Path(str(_core.__file__)), Path(_core.library_info()["path"])]


def test_the_files_have_the_probes_with_their_arguments() -> None:
    found = [probe for path in files() for probe in probes(path)]
    assert {probe.name for probe in found} == set(SIZES)
    for probe in found:
        assert probe.code.startswith(NOP[platform.machine()]), probe
        assert probe.semaphore == 0  # nothing is counted
        sizes, places = zip(*(each.split("@") for each in probe.arguments), strict=True)
        assert tuple(map(int, sizes)) == SIZES[probe.name]
        assert all(places)


@pytest.mark.skipif(not shutil.which("strip"), reason="there is no strip: apt-get install binutils")
def test_probes_remain_after_strip(tmp_path: Path) -> None:
    for path in files():
        stripped = tmp_path / path.name
        subprocess.run(["strip", "-o", stripped, path], check=True)
        assert [probe[:3] for probe in probes(stripped)] == [probe[:3] for probe in probes(path)]


SCRIPT = """
set breakpoint pending on
set pagination off
set debuginfod enabled off
handle all nostop noprint pass
"""


@pytest.mark.skipif(not shutil.which("gdb"), reason="there is no gdb: apt-get install gdb")
@pytest.mark.skipif("GOLOOP_SANITIZE" in os.environ, reason="gdb takes minutes with the sanitizer")
def test_gdb_stops_at_probes_and_finds_the_arguments(tmp_path: Path) -> None:
    script = tmp_path / "script"
    text = SCRIPT
    for name in SIZES:
        text += f"break -probe-stap goloop:{name}\ncommands\nsilent\n"
        text += f'printf "[{name} %lu %lu]\\n", (unsigned long)$_probe_arg0, '
        text += "(unsigned long)$_probe_arg1\ncontinue\nend\n"
    script.write_text(f"{text}run\n")
    command = [
        "gdb",
        "-q",
        "-nx",
        "-batch",
        "-x",
        script,
        "--args",
        sys.executable,
        PROGRAMS / "probed.py",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("gdb may not trace here")
    stops = numbers(r"\[(\w+) (\d+) (\d+)\]", done.stdout)
    told = numbers(r"<(\w+) (\d+) (\d+)>", done.stdout)
    assert told["accept"] == stops["accept"]
    assert told["task_step"][0] in stops["task_step"]
    assert told["task_step"][0] != stops["task_step"][0]  # which was main's
    [(loop, _)] = told["accept"]
    assert {number for number, _ in stops["late_write"] + stops["iteration_slow"]} == {loop}
    assert max(ns for _, ns in stops["iteration_slow"]) >= 400_000_000
    # When the iteration began in which that was written.
    (_, began), (_, written) = stops["late_write"][-1], told["late_write"][-1]
    assert written - 10_000_000_000 < began <= written


def numbers(pattern: str, text: str) -> dict[str, list[tuple[int, int]]]:
    """Return the matches of a pattern, by its first group."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name, first, second in re.findall(pattern, text):
        found.setdefault(name, []).append((int(first), int(second)))
    return found
