"""The trace of a simulation as a file for Perfetto."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from goloop import testing

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="simulated kernels are Linux's")


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.readexactly(5))
    writer.close()


async def server() -> None:
    async with await asyncio.start_server(serve, None, 80) as made:
        await made.serve_forever()


async def ask() -> bytes:
    reader, writer = await asyncio.open_connection("b", 80)
    writer.write(b"hello")
    answer = await reader.read()
    writer.close()
    return answer


async def ask_another_host(sim: testing.Simulation) -> bytes:
    a, b = sim.host("a"), sim.host("b")
    sim.net.set_link("a", "b", latency=0.5)
    b.spawn(server)
    await asyncio.sleep(1)
    answer: bytes = await a.spawn(ask)
    return answer


def events_of(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    made = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    return list(made["traceEvents"])


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_hosts_are_processes_and_packets_go_between_them(tmp_path: Path, name: str) -> None:
    result = testing.run(ask_another_host, steps=True)
    result.write_trace(tmp_path / name)
    events = events_of(tmp_path / name)
    named = {each["args"]["name"]: each for each in events if each["ph"] == "M"}
    assert [named[host]["pid"] for host in ("main", "a", "b")] == [0, 1, 2]
    assert (named["ask"]["pid"], named["server"]["pid"], named["serve"]["pid"]) == (1, 2, 2)
    assert named["ask_another_host"]["pid"] == 0

    asking = [each for each in events if each["ph"] == "X" and each["name"] == "ask"]
    assert {(each["pid"], each["tid"]) for each in asking} == {(1, named["ask"]["tid"])}
    assert sum(each["dur"] for each in asking) >= 2_000_000  # µs: a connection and an answer

    starts = {each["id"]: each for each in events if each["ph"] == "s"}
    ends = {each["id"]: each for each in events if each["ph"] == "f"}
    assert starts.keys() == ends.keys()
    data = [n for n in starts if starts[n]["name"] == "data"]
    assert [(starts[n]["pid"], ends[n]["pid"]) for n in data] == [(1, 2), (2, 1)]
    assert [ends[n]["ts"] - starts[n]["ts"] for n in data] == [500_000, 500_000]
    slices = {(e["pid"], e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    assert {(e["pid"], e["tid"], e["ts"]) for e in (*starts.values(), *ends.values())} <= slices

    calls = {(each["name"], each["pid"]) for each in events if each["ph"] == "i"}
    assert {("connect", 1), ("listen", 2), ("accept", 2), ("send", 1), ("send", 2)} <= calls


def test_steps_are_in_the_trace_where_they_are_wanted() -> None:
    with_steps, without = (testing.run(ask_another_host, steps=each) for each in (True, False))
    lines = with_steps.trace.splitlines()
    assert [each for each in lines if " step " not in each] == without.trace.splitlines()
    assert len(lines) > len(without.trace.splitlines())


@testing.simulate(seeds=1)
async def fails(sim: testing.Simulation) -> None:
    await ask_another_host(sim)
    raise ValueError("it fails")


def test_a_failure_names_its_trace_where_a_folder_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOLOOP_SIM_TRACES", raising=False)
    with pytest.raises(ValueError, match="it fails") as failed:
        fails()
    assert "trace" not in failed.value.__notes__[0]

    folder = tmp_path / "traces"
    monkeypatch.setenv("GOLOOP_SIM_TRACES", str(folder))
    with pytest.raises(ValueError, match="it fails") as failed:
        fails()
    (path,) = folder.iterdir()
    assert f"Trace, for ui.perfetto.dev: {path}\n" in failed.value.__notes__[0]
    assert path.name.endswith("test_pictures-fails-io-0.json.gz")
    assert {"ask", "serve"} <= {e["args"]["name"] for e in events_of(path) if e["ph"] == "M"}

    monkeypatch.setenv("GOLOOP_SIM_TRACES", str(path / "below"))
    with pytest.raises(ValueError, match="it fails") as failed:
        fails()
    assert "The trace could not be written" in failed.value.__notes__[0]
