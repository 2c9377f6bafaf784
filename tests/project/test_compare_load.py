"""The command line of `goloop compare`, its load generator, and the answers that this knows."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from goloop.operations import server_ports
from goloop.operations.compare import arguments, diagnosis, load, loops
from goloop.operations.compare.answers import Answer, BadAnswer, read_requests, request

# ---- answers -------------------------------------------------------------------------------------

CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
COMPLETE = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "empty": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "chunks": b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"5\r\nhello\r\n3;x=1\r\nabc\r\n0\r\n\r\n",
    "trailers": b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"2\r\nab\r\n0\r\nX: y\r\n\r\n",
    "continue": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
}


@pytest.mark.parametrize("data", COMPLETE.values(), ids=COMPLETE)
def test_an_answer_ends_with_its_last_byte(data: bytes) -> None:
    for size in range(1, len(data) + 1):
        answer = Answer()
        answer.begin(b"GET / HTTP/1.1\r\n\r\n")
        pieces = [data[at : at + size] for at in range(0, len(data), size)]
        assert [answer.feed(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]


def test_an_answer_without_length_ends_with_the_connection() -> None:
    answer = Answer()
    answer.begin(b"GET / HTTP/1.1\r\n\r\n")
    assert not answer.feed(b"HTTP/1.0 200 OK\r\n\r\nhello")
    assert answer.ends_at_close()
    assert answer.head is not None
    assert answer.head.closes


def test_an_answer_to_head_has_no_body() -> None:
    answer = Answer()
    answer.begin(b"HEAD / HTTP/1.1\r\n\r\n")
    assert answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")


@pytest.mark.parametrize("data", [b"SSH-2.0\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + CHUNKED + b"z\r\n"])
def test_other_answers_are_refused(data: bytes) -> None:
    with pytest.raises(BadAnswer):
        Answer().feed(data)


def test_requests_of_a_file_get_missing_headers() -> None:
    text = "\nPOST /a HTTP/1.1\nX: 1\n\n{}\n### next\nGET /b\nHost: other\n"
    first, second = read_requests(text, "localhost")
    assert first == b"POST /a HTTP/1.1\r\nX: 1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"
    assert second == b"GET /b HTTP/1.1\r\nHost: other\r\n\r\n"


def test_the_host_of_a_request_has_the_brackets_of_ipv6() -> None:
    assert b"\r\nHost: [::1]\r\n" in request("/", "::1")
    assert b"\r\nHost: localhost\r\n" in request("/", "localhost")
    (found,) = read_requests("GET /b", "::1")
    assert found.endswith(b"\r\nHost: [::1]\r\n\r\n")


@pytest.mark.parametrize("data", [b"2", b"220 smtp ready\r\n", b"\x15\x03\x03", b"HTTP/2"])
def test_other_answers_are_refused_by_their_first_bytes(data: bytes) -> None:
    with pytest.raises(BadAnswer, match=re.escape(repr(data))):
        Answer().feed(data)


@pytest.mark.parametrize("text", ["", "\n###\n", "nonsense\n", "GET / FTP/1.0\n"])
def test_a_file_without_requests_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="request"):
        read_requests(text, "localhost")


# ---- bursts --------------------------------------------------------------------------------------


def order(port: int) -> dict[str, Any]:
    """An order of a burst that lasts until it is cancelled."""
    return {
        "kind": "tcp", "host": "127.0.0.1", "port": port, "connections": 1, "rate": None,
        "payloads": [base64.b64encode(b"hello").decode()], "tls": False, "insecure": False,
        "warmup": 0.0, "seconds": 1000, "limit": 30, "pids": [], "shares_core": False, "cores": [],
    }  # fmt: skip


def test_a_listener_that_was_away_during_a_burst_gets_connections_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "_REFUSED_SECONDS", -1.0)  # the first refusal is long enough

    async def main() -> None:
        loop = asyncio.get_running_loop()
        asked, again = asyncio.Event(), asyncio.Event()

        async def close_at_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(5)
            server.close()
            writer.transport.abort()
            asked.set()

        async def note(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(5)
            again.set()
            writer.transport.abort()

        server = await asyncio.start_server(close_at_once, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        refused = asyncio.Event()

        def add_error(burst: load.Burst, words: str) -> None:
            if words.startswith("connecting: "):
                refused.set()

        monkeypatch.setattr(load.Burst, "add_error", add_error)
        task = loop.create_task(load.run_burst(order(port)))
        async with asyncio.timeout(20):
            await asked.wait()
            await refused.wait()
            async with await asyncio.start_server(note, "127.0.0.1", port):
                await again.wait()
                task.cancel()
                await asyncio.wait([task])

    asyncio.run(main())


def test_a_server_that_does_not_listen_before_a_burst_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "_REFUSED_SECONDS", -1.0)
    with server_ports.Port("127.0.0.1", reserve=False) as free:
        result = asyncio.run(load.run_burst(order(free.number)))
    assert result["error"].startswith("the server does not accept connections any more: ")


# ---- the command line ----------------------------------------------------------------------------


def plan(*words: str) -> arguments.Plan:
    return arguments.parse(words)


def test_options_may_stand_on_both_sides_of_the_program() -> None:
    found = plan("--path", "/x", "-m", "uvicorn", "app:app", "--workers", "2", "--connections=4,9")
    assert found.program == ["-m", "uvicorn", "app:app", "--workers", "2", "--port", "{port}"]
    assert found.connections == [4, 9]
    assert found.payloads == [request("/x", "127.0.0.1")]
    assert found.command(8123)[-2:] == ["--port", "8123"]


def test_words_behind_two_dashes_are_the_programs() -> None:
    file = __file__
    found = plan("--tcp", "--", file, "--connections", "7", "--port", "{port}")
    assert found.program == [file, "--connections", "7", "--port", "{port}"]
    assert (found.kind, found.connections, found.alive_at_once) == ("tcp", [4, 100], True)
    assert [len(each) for each in found.payloads] == [1024]


def test_an_address_of_ipv6_has_brackets_before_a_port() -> None:
    words = (__file__, "--bind", "{host}:{port}", "--url=http://{host}:{port}/", "--host", "{host}")
    bind = ["--bind", "[::1]:8123", "--url=http://[::1]:8123/"]
    assert plan("--host", "::1", "--", *words).command(8123)[1:] == [*bind, "--host", "::1"]
    assert plan("--host", "::1", "-m", "gunicorn", "app").command(8123)[-1] == "[::1]:8123"
    assert plan("-m", "gunicorn", "app").command(8123)[-1] == "127.0.0.1:8123"


@pytest.mark.parametrize("option", ["--path=/", "--tcp"])
def test_only_a_server_without_an_error_may_be_slow(option: str) -> None:
    found = plan(__file__, option)
    slow = "pass a larger --seconds"
    assert slow in diagnosis.likely_reason(found, {})
    closed = "connections ended before the server had answered"
    reason = diagnosis.likely_reason(found, {closed: 9})
    assert reason.startswith(f"{closed} (9 times): ")
    assert slow not in reason
    assert "by --run" in reason


def test_servers_of_a_fixed_port_are_run_in_turns() -> None:
    assert not plan(__file__, "--port", "8000").alive_at_once
    assert plan("-m", "uvicorn", "app:app", "--port", "8000").alive_at_once
    assert plan(__file__).alive_at_once


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a program is missing"),
        (["-m"], "a program is missing"),
        (["no_such.py"], "there is no file 'no_such.py'"),
        (["uvicorn"], "a module is run by -m uvicorn"),
        (["--conections", "4", __file__], "did you mean --connections?"),
        (["--connections", "0", __file__], "must be from 1 to 100000, got '0'"),
        (["--rounds", "all", __file__], "must be auto or from 1 to 1000, got 'all'"),
        (["--path", "x", __file__], "must begin with /"),
        (["--loops", "asyncio", __file__], "at least two loops are needed"),
        (["--loops", "asyncio,nothing", __file__], "got 'nothing'"),
        (["--loops", "asyncio,asyncio", __file__], "asyncio is named twice"),
        (["--requests", "/no/such", __file__], "No such file"),
        (["--run", "--rate", "5", __file__], "--run measures a program that ends"),
    ],
)
def test_a_wrong_command_line_is_explained(
    words: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        plan(*words)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.startswith("usage: python -m goloop compare ")


def test_every_option_is_in_the_help() -> None:
    for option in (*arguments._FLAGS, *arguments._WITH_VALUE):
        assert option in arguments.USAGE


def test_every_option_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "compare.md").read_text()
    for option in (*arguments._FLAGS, *arguments._WITH_VALUE):
        assert f"`{option}" in page or f"{option} " in page, option


def test_installed_loops_have_asyncio_and_goloop() -> None:
    assert [loop.name for loop in loops.installed()][:2] == ["goloop", "asyncio"]
