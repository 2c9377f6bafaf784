"""The profile: the loops' time by function, compared with the programs' own measurements."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import ended
import pytest
from observed_programs import goloop, running
from partial_run import FREE_THREADED

from goloop import Profile, _core, new_event_loop
from goloop._internal.observe import profiling

SCENARIOS = Path(__file__).with_name("profile_scenarios.py")

pytestmark = [
    pytest.mark.goloop_only("asyncio's loop has no profile"),
    pytest.mark.skipif(sys.platform != "linux", reason="memory is read by a call of Linux"),
]


def ran(name: str, rate: str = "400") -> Any:
    """Return the last line that a scenario prints, of JSON."""
    return json.loads(ended.passes(SCENARIOS, name, GOLOOP_PROFILE=rate).splitlines()[-1])


def sums(entries: list[Any], function: str) -> tuple[float, float]:
    """Return the profile's times of a function, and of the calls that it has made."""
    found = [each for each in entries if each[1].partition(".<locals>")[0] == function]
    return sum(each[3] for each in found), sum(each[4] for each in found)


@pytest.mark.parametrize("name", ["tasks", "callbacks", "server"])
def test_profile_sums_agree_with_the_programs_measurement(name: str) -> None:
    # A monitor that gets no processor for a while has nothing to go by: some tries.
    wrong = ["not tried"]
    for _ in range(3):
        wrong = disagreements(ran(name))
        if not wrong:
            break
    assert not wrong


def disagreements(found: Any) -> list[Any]:
    """Return the culprits with a profiled time that is wrong by more than 5 % of the total."""
    whole = sum(wall for wall, _ in found["truth"].values())
    wrong = [] if abs(found["busy"] - whole) < 0.1 * whole else [found]
    for culprit, (wall, cpu) in found["truth"].items():
        seconds, processor = sums(found["entries"], culprit)
        if abs(seconds - wall) > 0.05 * whole or abs(processor - cpu) > 0.1 * whole:
            wrong.append((culprit, found))
    return wrong


def test_an_entry_names_task_and_line() -> None:
    found = ran("tasks")
    task, function, line, _, _ = found["entries"][0]
    assert (task, function) == ("worker", "large")
    text = SCENARIOS.read_text().splitlines()[line - 1]
    assert "time.perf_counter() < until" in text or text.strip() == "pass"


def test_at_a_rate_of_0_nothing_is_sampled() -> None:
    assert ran("samples", rate="0") == 0
    assert ran("samples") > 0


def test_invalid_profile_rate_gives_a_warning() -> None:
    program = "import goloop; goloop.new_event_loop().close()"
    done = ended.python("-c", program, apart=True, GOLOOP_PROFILE="often")
    assert (
        "GOLOOP_PROFILE='often' is not a number of samples a second; using the default 25"
        in done.stderr
    )


def test_before_the_first_loop_there_is_nothing_and_no_library_is_opened() -> None:
    assert ran("before_the_first_loop") == [[], "unopened"]


@pytest.mark.forks
def test_forked_child_has_only_its_own_profile() -> None:
    found = ran("forked_child")
    names = {entry[1] for entry in found["entries"]}
    assert "second" in names
    assert "first" not in names


def test_profile_separates_loops_of_threads() -> None:
    found = ran("loops_of_threads")
    loops = {name: {loop for loop, each in found if each == name} for name in ("first", "second")}
    assert all(len(each) == 1 for each in loops.values()), found
    assert loops["first"] != loops["second"]


def test_short_lived_code_objects_can_be_sampled() -> None:
    found = ran("short_lived_code_objects", rate="1000")
    assert found["entries"]
    for _, function, _, _, _ in found["entries"]:
        assert function.isprintable()


# ---- formats of the profile ------------------------------------------------------------------


def made() -> Profile:
    """A profile that comes from no program."""
    codes: list[Any] = [["", "", 0]] * 6
    codes += [["serve", "/app/server.py", 10], ["loads", "/lib/python3.13/json.py", 300]]
    codes += [["<lambda>;x", "/app/größe.py", 1]]
    calls = [
        [0, 0, 0, 0, 0, 0],
        [0, 1, 3, 0, 0, 0],
        [1, 2, 0, 0, 0, 0],  # a task
        [2, 6, 12, 10, 1_000_000_000, 900_000_000],
        [3, 7, 310, 20, 2_000_000_000, 2_000_000_000],
        [1, 3, 0, 0, 0, 0],  # a callback
        [5, 8, 1, 5, 500_000_000, 0],
        [1, 4, 0, 1, 100_000_000, 0],  # the loop itself
    ]
    raw = {"began": 1_000_000_000, "clock": 11.0, "time": 1e9, "samples": 36, "calls": calls}
    return profiling.from_raw({**raw, "codes": codes, "library": ["/lib/python3.13/"]})


def test_entries_are_of_the_innermost_function_of_the_programs_own() -> None:
    told = [(e.task, e.function, e.line, e.seconds, e.cpu, e.samples) for e in made().entries]
    assert told == [
        ("serve", "serve", 12, 3.0, 2.9, 30),
        ("callback <lambda>;x", "<lambda>;x", 1, 0.5, 0.0, 5),
        ("(the loop)", "(the loop)", 0, 0.1, 0.0, 1),
    ]
    assert made().seconds == 10.0
    assert made().busy == pytest.approx(3.6)


def test_the_difference_of_two() -> None:
    earlier = made()
    raw_time = earlier.ended
    later = profiling.Profile(
        seconds=20.0,
        samples=46,
        stacks=tuple(
            type(each)(
                each.loop, each.task, each.frames, each.seconds + 1, each.cpu, 10 + each.samples
            )
            if each.task == "serve" and len(each.frames) == 1
            else each
            for each in earlier.stacks
        ),
        ended=raw_time + 10,
        library=earlier.library,
    )
    between = later - earlier
    assert [(e.function, e.seconds, e.samples) for e in between.entries] == [("serve", 1.0, 10)]
    assert (between.seconds, between.samples) == (10.0, 10)


def test_times_between_two_snapshots_add_up_to_the_time_between_them() -> None:
    frame = profiling.Frame("f", "/f.py", 1)

    def snapshot(seconds: float, clock: float, *loops: int) -> profiling.Profile:
        stacks = [
            profiling.ProfileStack(loop, task, (frame,), seconds, seconds / 2, int(seconds * 100))
            for loop in loops
            for task in ("a", "b")
        ]
        return profiling.Profile(clock, 100, tuple(stacks), 1e9 - clock, (), clock)

    one = snapshot(10.53, 20.0, 1) - snapshot(10.0, 19.0, 1)
    assert one.seconds == 1.0  # though the system's time was set back
    assert one.busy == pytest.approx(1.0)
    assert [each.cpu for each in one.stacks] == pytest.approx([0.25, 0.25])
    assert str(one).count(" 50.0%  25.0%") == 2
    two = snapshot(10.53, 20.0, 1, 2) - snapshot(10.0, 19.0, 1, 2)
    assert two.busy == pytest.approx(2.0)
    assert " 50.0%  25.0%     1.00  a" in str(two)
    within = snapshot(10.2, 20.0, 1) - snapshot(10.0, 19.0, 1)
    assert within.busy == pytest.approx(0.4)


def test_no_share_exceeds_100_percent() -> None:
    """A sample stands for the time up to the next one, which may be after the snapshot."""
    frame = profiling.Frame("f", "/f.py", 1)
    stack = profiling.ProfileStack(1, "a", (frame,), 1.2, 1.2, 100)
    profile = profiling.Profile(1.0, 100, (stack,), 0.0, (), 1.0)
    assert "100.0% 100.0%     1.20  a" in str(profile)
    assert "1.200 s of the loop (100.0%)" in profile.flame_graph("title")


def test_folded_stacks() -> None:
    assert made().folded().splitlines() == [
        "task serve;serve (server.py:12);loads (json.py:310) 2000000",
        "task serve;serve (server.py:12) 1000000",
        "callback <lambda>,x;<lambda>,x (größe.py:1) 500000",
        "(the loop) 100000",
    ]


def test_flame_graph_is_one_self_contained_picture() -> None:
    text = made().flame_graph("a <title>")
    root = ElementTree.fromstring(text)
    spaces = {"s": "http://www.w3.org/2000/svg"}
    boxes = {each.get("data-name"): each for each in root.findall(".//s:g", spaces)}
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    wide = float(boxes["all"].get("data-w") or 0)
    assert float(boxes["task serve"].get("data-w") or 0) == pytest.approx(wide * 3 / 3.6, abs=0.01)
    told = boxes["loads (json.py:310)"].find("s:title", spaces)
    assert told is not None
    assert "2.000 s of the loop (20.0%), 2.000 s on a processor" in str(told.text)


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data: bytes) -> list[tuple[int, Any]]:
    """A message of protobuf: the numbers of its fields, and numbers or bytes."""
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        value, at = varint(data, at)
        if key & 7 == 2:
            found.append((key >> 3, data[at : at + value]))
            at += value
        else:
            assert key & 7 == 0
            found.append((key >> 3, value))
    return found


def test_pprof_has_each_stack_with_its_names() -> None:
    message = fields(gzip.decompress(made().pprof()))
    strings = [value.decode() for number, value in message if number == 6]
    functions = {dict(f)[1]: dict(f) for f in (fields(v) for n, v in message if n == 5)}
    locations = {
        dict(f)[1]: dict(fields(dict(f)[4])) for f in (fields(v) for n, v in message if n == 4)
    }
    told = []
    for sample in [fields(value) for number, value in message if number == 2]:
        ids, values = ([], [])
        for into, packed in ((ids, dict(sample)[1]), (values, dict(sample)[2])):
            at = 0
            while at < len(packed):
                value, at = varint(packed, at)
                into.append(value)
        names = [(strings[functions[locations[i][1]][2]], locations[i].get(2, 0)) for i in ids]
        told.append((names, values))
    assert strings[0] == ""
    assert told[0] == (
        [("loads", 310), ("serve", 12), ("task serve", 0)],
        [20, 2_000_000_000, 2_000_000_000],
    )
    assert len(told) == 4


def test_go_pprof_reads_the_profile(tmp_path: Path) -> None:
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not os.path.exists(go):
        pytest.skip("no Go here that has pprof")
    path = tmp_path / "profile.pb.gz"
    path.write_bytes(made().pprof())
    done = subprocess.run(
        [go, "tool", "pprof", "-raw", str(path)],
        env={**os.environ, "PPROF_TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert "loop/nanoseconds[dflt]" in done.stdout
    assert "serve /app/server.py:12" in done.stdout
    assert "task:[serve]" in done.stdout


# ---- the command -----------------------------------------------------------------------------


def test_the_command_writes_each_kind_of_file(tmp_path: Path) -> None:
    paths = [tmp_path / f"profile{ending}" for ending in (".pb.gz", ".svg", ".folded")]
    with running((SCENARIOS, "service"), GOLOOP_PROFILE="200") as process:
        arguments = [part for path in paths for part in ("-o", str(path))]
        done = goloop("profile", str(process.pid), "--seconds", "1", *arguments)
    assert done.returncode == 0, done.stderr
    assert f"small {SCENARIOS}:" in done.stdout
    assert gzip.decompress(paths[0].read_bytes())
    assert "small" in paths[1].read_text()
    assert re.search(r"task computes;computes \(.*:\d+\);small", paths[2].read_text())


def test_profile_of_a_process_with_a_held_gil() -> None:
    program = (SCENARIOS, "service", "holds the GIL")
    with running(program, GOLOOP_PROFILE="200") as process:
        done = goloop("profile", str(process.pid), "--seconds", "2")
    assert done.returncode == 0, done.stderr
    # Without the GIL Python may answer meanwhile.
    assert FREE_THREADED or "the GIL is held" in done.stderr
    assert f"holds_the_gil {SCENARIOS}:" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["profile", "0"], 2, "is not a process id"),
        (["profile", "1", "-o", "x.png"], 2, "the extension must be one of"),
        (["profile", "1", "--seconds", "-1"], 2, "must be a number of seconds from 0 "),
        (["profile", str(2**22 - 1)], 1, "there is no process"),
    ],
)
def test_wrong_arguments(arguments: list[str], status: int, words: str) -> None:
    done = goloop(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert words in done.stderr


def test_a_long_answer_of_the_library_is_whole() -> None:
    async def main() -> None:
        loop.set_slow_limit(1e-9)  # an entry for each iteration
        for _ in range(200):
            await asyncio.sleep(1e-6)

    loop: Any = new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    text = _core._profile()
    assert len(text) > 8192
    assert len(json.loads(text)["slow"]) >= 100
