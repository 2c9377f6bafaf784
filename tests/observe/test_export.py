"""goloop export: one endpoint with the metrics of all processes, also of hanging ones."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from observed_programs import Program, goloop, running, until
from prometheus_client.parser import text_string_to_metric_families as parse

from goloop._internal.observe.metric_registry import METRICS
from goloop.operations import introspection
from goloop.operations.commands import client, export

PROGRAMS = Path(__file__).with_name("programs")

pytestmark = pytest.mark.goloop_only("asyncio's loop counts nothing")

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the GIL is seen by calls of Linux")
has_gil = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="there is no GIL to keep"
)

# Other tests look at all processes too: these here have sockets of another name.
APART = f"""
from goloop.operations import introspection
introspection.NAME = "goloop-export-{os.getpid()}-"
"""


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introspection, "NAME", f"goloop-export-{os.getpid()}-")


# A second loop in a thread, and a line of standard input: `turn` lets the first one go round,
# `hang` keeps the GIL for good.
PROGRAM = f"{APART}introspection.introspect()\n" + (PROGRAMS / "exported.py").read_text()


def say(process: Program, word: str, answer: str = "") -> None:
    """Give it a line, and wait for its own."""
    process.say(word)
    assert process.stdout.readline() == f"{answer or word}\n"


@contextlib.contextmanager
def program() -> Iterator[tuple[Program, int]]:
    """The process, and the port of its own /metrics."""
    with running(PROGRAM, ready="", asked=False) as process:
        ready, port = process.stdout.readline().split()
        assert ready == "ready"
        yield process, int(port)


Samples = dict[str, dict[str, float]]


def samples(page: str, pid: int) -> Samples:
    """The values of one process: by name, and by the loop's number or ""; buckets by theirs too."""
    found: Samples = {}
    for family in parse(page):
        for sample in family.samples:
            labels = dict(sample.labels)
            if labels["pid"] == str(pid):
                key = " ".join(labels[name] for name in ("loop", "le") if name in labels)
                assert key not in found.get(sample.name, {})
                found.setdefault(sample.name, {})[key] = sample.value
    return found


def scraped(pid: int, exporter: export.Exporter | None = None) -> Samples:
    return samples((exporter or export.Exporter()).scrape().decode(), pid)


def get(port: int, path: str = "/metrics", timeout: float = 60) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=timeout) as answer:
        text: str = answer.read().decode()
        return text


# ---- contents of a page ------------------------------------------------------------------


def test_a_process_with_two_loops_has_all_figures_by_loop() -> None:
    exporter = export.Exporter()
    with program() as (process, port):
        # The program may keep the GIL for a moment after it has printed its line.
        def at_rest() -> Samples | None:
            found = scraped(process.pid, exporter)
            return found if found["goloop_gil_held"] == {"": 0} else None

        first = until(at_rest)
        say(process, "turn")

        # The turn that printed the word may not have ended yet.
        def after_the_turn() -> str | None:
            page = exporter.scrape().decode()
            turns = samples(page, process.pid)["goloop_turns_total"]["1"]
            return page if turns > first["goloop_turns_total"]["1"] else None

        page = until(after_the_turn)
        second = samples(page, process.pid)
        own = {family.name: family for family in parse(get(port))}
    assert first["goloop_up"] == {"": 1}
    assert first["goloop_loops"] == {"": 2}
    assert set(first["goloop_tasks"]) == {"1", "2"}
    # The collector is the process's.
    assert set(first["goloop_gc_seconds_total"]) == {""}
    assert second["goloop_turns_total"]["1"] > first["goloop_turns_total"]["1"]
    assert second["goloop_iteration_seconds_count"]["1"] > 0
    # Go's heap is not asked for: that would take Go's time.
    left_out = {"goloop_go_heap_bytes", "goloop_goroutines"}
    families = {family.name: family for family in parse(page)}
    for name in {"goloop_info"} | {spec.prometheus for spec in METRICS} - left_out:
        name = name.removesuffix("_total")
        ours, theirs = families[name], own[name]
        assert (ours.type, ours.documentation) == (theirs.type, theirs.documentation)
        bounds = [
            [each.labels["le"] for each in family.samples if each.name.endswith("_bucket")]
            for family in (ours, theirs)
        ]
        assert set(bounds[0]) == set(bounds[1])
    assert not left_out & families.keys()
    [info], [own_info] = families["goloop_info"].samples, own["goloop_info"].samples
    assert info.labels.items() > own_info.labels.items()
    assert own_info.labels["native"] == "true"


def test_the_label_of_the_program_is_its_name(tmp_path: Path) -> None:
    file = tmp_path / "server.py"
    file.write_text(f"{APART}introspection.introspect()\nprint('ready', flush=True)\ninput()\n")
    start = f"import os, sys; os.execv(sys.executable, [sys.executable, {str(file)!r}])"
    with running(start, asked=False) as process:
        page = export.Exporter().scrape().decode()
    assert f'goloop_up{{pid="{process.pid}",program="server.py"}} 1.0\n' in page


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("/usr/bin/python3.12 /srv/app/server.py --port 1", "server.py"),
        ("python -X dev -u -m uvicorn app:app", "uvicorn"),
        ("python -W error -m goloop -m uvicorn app:app", "uvicorn"),
        ("python -m goloop /srv/server.py", "server.py"),
        ("/venv/bin/python /venv/bin/goloop server.py -m x", "server.py"),
        ("/venv/bin/goloop -m hypercorn app:app", "hypercorn"),
        ("python -m goloop", "goloop"),
        ("python -c print()", "-c"),
        ("python - x", "-"),
        ("python", "python"),
        ("/usr/bin/gunicorn -w 4", "gunicorn"),
        ("", ""),
    ],
)
def test_names_of_programs(words: str, name: str) -> None:
    assert export.name_of(words.split()) == name


def test_a_title_is_the_name_of_a_program() -> None:
    assert export.name_of(["gunicorn: worker [a/b]"]) == "gunicorn: worker [a/b]"


# ---- processes that do not answer ----------------------------------------------------------


@linux_only
@has_gil
def test_exporter_serves_metrics_of_a_process_with_a_held_gil() -> None:
    exporter = export.Exporter()
    with program() as (process, port):
        before = scraped(process.pid, exporter)
        say(process, "hang", "hangs")
        first = until(
            lambda: (
                (found := scraped(process.pid, exporter)).get("goloop_gil_held", {}).get("")
                and found
            )
        )
        with pytest.raises(TimeoutError):
            get(port, timeout=1)
        second = scraped(process.pid, exporter)
        # A new one has not seen it before.
        fresh = scraped(process.pid)
    for found in (first, second, fresh):
        assert found["goloop_up"] == {"": 1}
        assert found["goloop_loops"] == {"": 2}
        assert found["goloop_turns_total"]["1"] >= before["goloop_turns_total"]["1"]
        # Metrics that the monitor does not know are absent.
        assert not {"goloop_tasks", "goloop_timers", "goloop_gc_seconds_total"} & found.keys()
    # By the same number as before, though the monitor has its loops in another order.
    assert first["goloop_blocked_for_seconds"]["1"] > 0
    assert first["goloop_blocked_for_seconds"]["2"] == 0
    for name in ("goloop_blocked_for_seconds", "goloop_busy_seconds_total"):
        assert second[name]["1"] > first[name]["1"]
    assert second["goloop_idle_seconds_total"]["2"] > first["goloop_idle_seconds_total"]["2"]
    assert "goloop_info" in first
    assert "goloop_info" not in fresh


def test_a_process_that_is_stopped_is_down_and_the_others_are_not() -> None:
    exporter = export.Exporter(0.5)
    with program() as (stopped, _), program() as (other, _):
        os.kill(stopped.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
        page = exporter.scrape().decode()
        assert samples(page, stopped.pid) == {"goloop_up": {"": 0}}
        assert until(lambda: scraped(other.pid, exporter)["goloop_up"][""])
        os.kill(stopped.pid, signal.SIGCONT)
        found = until(lambda: (found := scraped(stopped.pid, exporter))["goloop_up"][""] and found)
        assert found["goloop_loops"] == {"": 2}


def test_processes_come_and_go_between_scrapes() -> None:
    exporter = export.Exporter()
    with program() as (process, _):
        assert scraped(process.pid, exporter)["goloop_up"] == {"": 1}
        with program() as (late, _):
            assert scraped(late.pid, exporter)["goloop_up"] == {"": 1}
        process.kill()
        process.wait()
        assert scraped(process.pid, exporter) == scraped(late.pid, exporter) == {}
        assert not {process.pid, late.pid} & set(exporter._known)


def test_process_with_a_reused_id_starts_new_counts() -> None:
    exporter = export.Exporter()
    with program() as (process, _):
        scraped(process.pid, exporter)
        known = exporter._known[process.pid]
        high = dict.fromkeys(known._last, 1e18)
        known._last = high
        assert "goloop_turns_total" not in scraped(process.pid, exporter)
        known._last, known.started = high, b"1"
        assert "goloop_turns_total" in scraped(process.pid, exporter)


AS_NOBODY = (PROGRAMS / "as_nobody.py").read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_processes_of_other_users_are_not_exported() -> None:
    with program() as (process, _):
        assert scraped(process.pid)["goloop_up"] == {"": 1}
        done = goloop("export", "--once", before=APART + AS_NOBODY)
        assert (done.returncode, done.stderr) == (0, "")
        assert samples(done.stdout, process.pid) == {}


# ---- answers ------------------------------------------------------------------------------


def described(process: export._Process, **answer: Any) -> Samples:
    page = process.describe({"protocol": 1, "pid": os.getpid(), **answer}).encode().decode()
    return samples(page, os.getpid())


def loop(number: int, **metrics: Any) -> dict[str, Any]:
    return {"number": number, "metrics": metrics}


def test_a_counter_that_the_monitor_does_not_know_in_full_does_not_go_back() -> None:
    process = export._Process(os.getpid(), b"")
    told = described(process, loops=[loop(1, bytes_sent=100, turns=5, ready=9)])
    assert told["goloop_sent_bytes_total"] == {"1": 100}
    # Python itself has sent 60 of them.
    told = described(process, partial=True, loops=[loop(1, bytes_sent=40, turns=6)])
    assert "goloop_sent_bytes_total" not in told
    assert told["goloop_turns_total"] == {"1": 6}
    assert "goloop_ready_callbacks" not in told
    told = described(process, partial=True, loops=[loop(1, bytes_sent=99, turns=6)])
    assert "goloop_sent_bytes_total" not in told
    told = described(process, partial=True, loops=[loop(1, bytes_sent=140, turns=6)])
    assert told["goloop_sent_bytes_total"] == {"1": 140}
    # Metrics that are not counters may change in any direction.
    described(process, loops=[loop(1, ready=9)])
    assert described(process, loops=[loop(1, ready=3)])["goloop_ready_callbacks"] == {"1": 3}


def test_unknown_metrics_of_another_version_are_omitted_singly() -> None:
    process = export._Process(os.getpid(), b"")
    metrics = {"turns": 5, "iteration_time": "AAAA", "poll_time": "", "tasks": None, "flux": 7}
    told = described(process, loops=[loop(1, **metrics)])
    assert told["goloop_turns_total"] == {"1": 5}
    assert told["goloop_poll_seconds_count"] == {"1": 0}
    assert set(told) == {
        *("goloop_up", "goloop_gil_held", "goloop_loops", "goloop_turns_total"),
        *("goloop_poll_seconds_bucket", "goloop_poll_seconds_sum", "goloop_poll_seconds_count"),
    }


def test_a_loop_of_asyncios_has_no_figures() -> None:
    process = export._Process(os.getpid(), b"")
    facts = {"goloop": "0.3.0", "python": "3.14.0"}
    told = described(process, loops=[{"number": 0, "metrics": None}], **facts)
    assert set(told) == {"goloop_up", "goloop_gil_held", "goloop_info", "goloop_loops"}


@pytest.mark.parametrize(
    "nonsense",
    [
        {},
        {"loops": 5},
        {"loops": [5]},
        {"loops": [{"metrics": 5}]},
        {"loops": [{"number": "x", "metrics": {}}]},
        {"loops": [], "goloop": "0.3.0"},
    ],
)
def test_invalid_answer_counts_as_no_answer(nonsense: dict[str, Any]) -> None:
    process = export._Process(os.getpid(), b"")
    assert described(process, **nonsense) == {"goloop_up": {"": 0}}


def test_foreign_texts_are_escaped_in_labels() -> None:
    process = export._Process(os.getpid(), b"")
    process._labels["program"] = 'a"\\\n b\ud800'
    page = process.describe({"loops": []}).encode().decode()
    [family, *_] = parse(page)
    assert family.samples[0].labels["program"] == 'a"\\\n b?'
    assert len(page.splitlines()) == 9


@pytest.mark.parametrize("piece", ["[", " " * 3])
def test_incomplete_answers_count_as_no_answer(monkeypatch: pytest.MonkeyPatch, piece: str) -> None:
    monkeypatch.setattr(client, "_BYTES", 2_000_000)
    with running((PROGRAMS / "floods.py", introspection.NAME), asked=False) as process:
        process.say(piece)
        assert scraped(process.pid) == {"goloop_up": {"": 0}}


# ---- the server ------------------------------------------------------------------------------


@contextlib.contextmanager
def exporting(*arguments: str) -> Iterator[tuple[Program, str]]:
    """`goloop export`, and where it listens."""
    start = f"{APART}import sys\nfrom goloop.__main__ import command\nsys.exit(command())"
    command = [sys.executable, "-c", start, "export", *arguments]
    with Program(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline()
            found = re.fullmatch(r"goloop export: (\S+)\n", line)
            assert found, line + process.stderr.read()
            yield process, found[1]
        finally:
            process.kill()


def test_the_server_answers_scrapes_until_it_is_ended() -> None:
    with program() as (process, _), exporting("--listen", "127.0.0.1:0") as (server, url):
        port = int(url.removesuffix("/metrics").rpartition(":")[2])
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for _ in range(2):  # by one connection
            client.request("GET", "/metrics?x=1")
            answer = client.getresponse()
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            page = answer.read().decode()
            assert samples(page, process.pid)["goloop_up"] == {"": 1}
        client.request("HEAD", "/healthz")
        answer = client.getresponse()
        assert (answer.status, answer.read()) == (200, b"")
        assert answer.headers["Content-Length"] == "3"
        client.request("GET", "/metric")
        answer = client.getresponse()
        assert answer.status == 404
        assert b"/metrics" in answer.read()
        client.close()
        assert get(port, "/healthz") == "ok\n"
        # On one connection; HEAD has no body.
        asks = b"HEAD /healthz HTTP/1.1\r\n\r\nGET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=60) as bare:
            bare.sendall(asks)
            told = b"".join(iter(lambda: bare.recv(4096), b""))
        assert told.count(b"HTTP/1.1 200 OK\r\n") == 2
        assert told.count(b"ok\n") == 1
        # A client that disconnects before its answer causes no traceback.
        with socket.create_connection(("127.0.0.1", port)) as rude:
            rude.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        for _ in range(2):  # in sequence
            get(port)
        server.terminate()
        assert server.stderr.read() == ""
        assert server.wait(60) == 0


def test_two_servers_cannot_have_one_address() -> None:
    with exporting("--listen", "127.0.0.1:0") as (_, url):
        where = url.removeprefix("http://").removesuffix("/metrics")
        done = goloop("export", "--listen", where)
    assert done.returncode == 1
    assert done.stderr == f"goloop export: {where}: Address already in use\n"


def test_a_socket_file_is_removed_at_the_end_and_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "s"

    def ask() -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(60)
            client.connect(str(path))
            client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            return b"".join(iter(lambda: client.recv(4096), b""))

    with exporting("--listen", f"unix:{path}") as (crashes, url):
        assert url == f"unix:{path}"
        assert ask().endswith(b"\r\n\r\nok\n")
        done = goloop("export", "--listen", f"unix:{path}")
        assert done.returncode == 1
        assert "in use" in done.stderr
        crashes.kill()
        crashes.wait(60)
    with exporting("--listen", f"unix:{path}") as (server, _):
        assert ask().endswith(b"ok\n")
        server.terminate()
        assert server.wait(60) == 0
    assert not path.exists()
    # A file that is not a socket belongs to another program.
    path.write_text("mine")
    assert goloop("export", "--listen", f"unix:{path}").returncode == 1
    assert path.read_text() == "mine"


def test_sigterm_in_a_finalizer_ends_the_server() -> None:
    # An exception of a signal handler would be dropped there.
    command = [sys.executable, PROGRAMS / "signalled_in_a_finalizer.py", introspection.NAME]
    with Program(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = process.stderr.readline().split()[-1]
            with contextlib.suppress(OSError):  # the exporter may end before its answer
                urllib.request.urlopen(url.replace("metrics", "healthz"), timeout=60).close()
            assert process.wait(60) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
def test_exporter_listens_on_ipv6() -> None:
    with exporting("--listen", "[::1]:0") as (_, url):
        assert re.fullmatch(r"http://\[::1\]:\d+/metrics", url)
        with urllib.request.urlopen(url.replace("metrics", "healthz"), timeout=60) as answer:
            assert answer.read() == b"ok\n"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--listen 9764", "must be HOST:PORT, [HOST]:PORT or unix:PATH, got '9764'"),
        ("--listen 127.0.0.1:65536", "unix:PATH, got '127.0.0.1:65536'"),
        ("--listen ::1:80", "unix:PATH, got '::1:80'"),
        ("--listen unix:", "unix:PATH, got 'unix:'"),
        ("--timeout 0", "must be a number of seconds from 0.1 to 86400, got '0'"),
        ("--lisen x:1", "unrecognized arguments: --lisen x:1; did you mean --listen?"),
        ("4711", "unrecognized arguments: 4711\n"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: str, reason: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        export.main(arguments.split())
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "usage: python -m goloop export" in told
    assert reason in told


def test_misspelt_command_gives_a_suggestion() -> None:
    done = goloop("exprot")
    assert done.returncode == 2
    assert "did you mean 'export'?" in done.stderr


def test_export_once_ends_quietly_on_a_closed_pipe() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    start = f"{APART}import sys\nfrom goloop.__main__ import command\nsys.exit(command())"
    command = [sys.executable, "-c", start, "export", "--once"]
    with program():
        done = subprocess.run(command, stdout=writes, stderr=subprocess.PIPE, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (0, b"")
