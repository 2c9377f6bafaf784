"""The OpenSSL in use, and its other users: a second library, callbacks, other threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import ssl
import subprocess
import sysconfig
import threading
from pathlib import Path
from typing import Any

import ended
import pytest
from conftest import LOOP_NAMES, Errors, tcp_pair
from protocols import Recorder, RecordingEcho, turns
from tls_connections import Loop, over, with_peer
from tls_tools import Peer, client_context, server_context


@pytest.mark.skipif("goloop" not in LOOP_NAMES, reason="asyncio has one path")
@pytest.mark.skipif(os.environ.get("GOLOOP_TLS") == "stdlib", reason="it is about the direct path")
@pytest.mark.parametrize("name", ["SSL_read_ex", "ERR_clear_error", "something_else"])
def test_library_preloaded_before_openssl_is_not_bypassed(tmp_path: Path, name: str) -> None:
    """_ssl's own calls reach it: so do all, by SSLObject's methods."""
    source, library = tmp_path / "before.c", tmp_path / "before.so"
    source.write_text(f"int {name}(void) {{ return 0; }}\n")
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [*shlex.split(compiler), "-fPIC", "-shared", "-nostdlib", str(source)]
    subprocess.run([*command, "-o", str(library)], check=True)
    preload = " ".join(filter(None, [os.environ.get("LD_PRELOAD"), str(library)]))
    program = "import goloop; print(goloop.diagnostics()['tls'])"
    done = ended.python("-c", program, apart=True, LD_PRELOAD=preload)
    if name == "something_else":
        assert done.stdout.strip() == "OpenSSL called directly", done.stderr
    else:
        assert "another library overrides the OpenSSL" in done.stdout, done.stderr


async def test_exception_of_a_message_callback_of_the_context_chosen_by_sni(
    loop: Loop, errors: Errors
) -> None:
    """The exception leaves SSLObject.do_handshake(), so the loop calls that method."""
    first, second = server_context(), server_context()
    contexts: Any = (first, second)

    def seen(*args: Any) -> None:
        raise ZeroDivisionError("the callback's own fault")

    def chosen(tls: ssl.SSLObject, name: str | None, initial: ssl.SSLContext) -> None:
        tls.context = second

    for each in contexts:
        each._msg_callback = seen
    first.sni_callback = chosen  # type: ignore[assignment]
    near, far = tcp_pair()
    accepting = asyncio.ensure_future(over(loop, Recorder, near, first, "server"))
    await turns(10)
    # The connection is made, and calls back for the context that it has then.
    contexts[0]._msg_callback = None

    def peer_does() -> None:
        with far, contextlib.suppress(OSError):
            peer = Peer(far, client_context())
            peer.handshake()
            peer.read()

    working = asyncio.ensure_future(asyncio.to_thread(peer_does))
    with pytest.raises(ZeroDivisionError):
        await accepting
    await working
    errors.expect(ZeroDivisionError, "Fatal error: protocol.buffer_updated() call failed.")


async def test_another_thread_may_ask_about_a_busy_connection(loop: Loop) -> None:
    """Calls of the SSLObject come between the loop's calls of OpenSSL, never during one."""
    rounds = 200

    def peer_does(peer: Peer) -> None:
        for _ in range(rounds):
            peer.write(bytes(20_000))
            peer.read_exactly(20_000)
        peer.unwrap()

    protocol, working = await with_peer(loop, "client", peer_does, factory=RecordingEcho)
    tls = protocol.transport.get_extra_info("ssl_object")
    certificate, cipher = tls.getpeercert(True), tls.cipher()
    over_now = threading.Event()

    def ask() -> int:
        count = 0
        while not over_now.is_set():
            # _ssl's own read gives the GIL up, and while it takes a ticket in the handshake is
            # "not done yet": there is no cipher and no version.
            with contextlib.suppress(ValueError):
                assert tls.getpeercert(True) == certificate
            assert tls.cipher() in (None, cipher)
            assert tls.version() in (None, "TLSv1.2", "TLSv1.3")
            assert tls.pending() >= 0
            count += 1
        return count

    asking = [asyncio.ensure_future(asyncio.to_thread(ask)) for _ in range(2)]
    await working
    over_now.set()
    assert all(count > 0 for count in await asyncio.gather(*asking))
    await protocol.lost
