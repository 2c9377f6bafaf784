"""Tools of the TLS tests: identities, contexts, and a peer that controls every byte.

The `openssl` command makes the identities when they are first needed: each a self-signed
certificate with a key of its own, trusted only by contexts that load it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
PASSWORD = "correct horse"


@dataclass(frozen=True)
class Identity:
    """A certificate for a name, with its key in clear and encrypted by PASSWORD."""

    name: str
    certificate: str
    key: str
    encrypted_key: str


@functools.cache
def _directory() -> Path:
    made = Path(tempfile.mkdtemp(prefix="goloop-certificates-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True, timeout=60)


# A peer's thread may ask for the identity that the loop's thread is making; without the
# lock both would write the two files, and a certificate would not fit its key.
_making = threading.Lock()


def identity(name: str = "localhost") -> Identity:
    """The identity of that name, which is in its certificate as a DNS name."""
    with _making:
        return _made(name)


@functools.cache
def _made(name: str) -> Identity:
    base = _directory() / name
    made = Identity(name, f"{base}.crt", f"{base}.key", f"{base}.encrypted.key")
    _openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-days", "30", "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"),
        *("-keyout", made.key, "-out", made.certificate),
    )
    _openssl(
        *("pkey", "-in", made.key, "-aes128", "-passout", f"pass:{PASSWORD}"),
        *("-out", made.encrypted_key),
    )
    return made


def server_context(
    who: str = "localhost", version: ssl.TLSVersion | None = None, *, clients: Iterable[str] = ()
) -> ssl.SSLContext:
    """For a server; it asks for a certificate where `clients` names the trusted ones."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = identity(who)
    made.load_cert_chain(own.certificate, own.key)
    for each in clients:
        made.load_verify_locations(identity(each).certificate)
        made.verify_mode = ssl.CERT_REQUIRED
    return fixed(made, version)


def client_context(
    *trusted: str, version: ssl.TLSVersion | None = None, who: str | None = None
) -> ssl.SSLContext:
    """For a client that trusts the named servers ("localhost" if none is named)."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for each in trusted or ("localhost",):
        made.load_verify_locations(identity(each).certificate)
    if who is not None:
        own = identity(who)
        made.load_cert_chain(own.certificate, own.key)
    return fixed(made, version)


@functools.cache
def usual_contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server, and of a client that trusts it; the same each time."""
    return server_context(), client_context()


def fixed(context: ssl.SSLContext, version: ssl.TLSVersion | None) -> ssl.SSLContext:
    """The context, restricted to one version of TLS."""
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


# ---- a peer that controls every byte ------------------------------------------------


def whole(data: bytes) -> Iterator[bytes]:
    """Everything at once."""
    yield data


class Peer:
    """TLS over a blocking socket, for a thread of its own.

    OpenSSL's output goes through `cut`, which divides it into the pieces
    that are sent; `pace` is called between two of them.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
        session: ssl.SSLSession | None = None,
        cut: Callable[[bytes], Iterable[bytes]] = whole,
        pace: Callable[[], None] = lambda: None,
    ) -> None:
        sock.setblocking(True)
        sock.settimeout(60)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.cut = cut
        self.pace = pace
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        if not server_side and server_hostname is None:
            server_hostname = "localhost"
        self.tls = context.wrap_bio(
            self.incoming,
            self.outgoing,
            server_side=server_side,
            server_hostname=server_hostname,
            session=session,
        )

    def flush(self) -> None:
        """Sends the records that were made."""
        self.send_raw(self.outgoing.read())

    def send_raw(self, data: bytes) -> None:
        """Sends bytes as they are, in pieces."""
        first = True
        for piece in self.cut(data) if data else ():
            if not first:
                self.pace()
            first = False
            self.sock.sendall(piece)

    def fill(self) -> bool:
        """Waits for bytes; False at the end of the stream."""
        data = self.sock.recv(65536)
        if data:
            self.incoming.write(data)
        return bool(data)

    def _until_done(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self.flush()
                if not self.fill():
                    raise ConnectionResetError("the stream ended without close_notify") from None
            except ssl.SSLError:
                self.flush()  # the alert
                raise
            else:
                self.flush()
                return result

    def handshake(self) -> None:
        self._until_done(self.tls.do_handshake)

    def write(self, data: bytes) -> None:
        """Encrypts and sends."""
        view = memoryview(data)
        while view:
            view = view[self.tls.write(view) :]
        self.flush()

    def seal(self, data: bytes) -> bytes:
        """The records of `data`, which the caller sends."""
        self.tls.write(data)
        return self.outgoing.read()

    def read(self, size: int = 65536) -> bytes:
        """Return the bytes of the other side; b"" after its close_notify.

        Raises ConnectionResetError if the stream ends without a close_notify.
        """
        try:
            data: bytes = self._until_done(lambda: self.tls.read(size))
        except ssl.SSLZeroReturnError:
            return b""
        return data

    def read_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            got = self.read(size - len(data))
            assert got, f"the stream ended after {len(data)} bytes of {size}"
            data += got
        return bytes(data)

    def read_all(self) -> bytes:
        """Everything up to the close_notify."""
        data = bytearray()
        while got := self.read():
            data += got
        return bytes(data)

    def notify(self) -> None:
        """Sends close_notify, without waiting for the other's."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        self.flush()

    def unwrap(self) -> None:
        """Sends close_notify and waits for the other's."""
        self._until_done(self.tls.unwrap)

    def key_update(self, *, ask: bool) -> None:
        """A new sending key (TLS 1.3); `ask` has the other side do the same.

        Python has no name for it, so OpenSSL is called, which makes the record with
        the next write.
        """
        function = openssl_function("SSL_key_update")
        function.argtypes = [ctypes.c_void_p, ctypes.c_int]
        pointer = ctypes.c_void_p.from_address(
            id(self.tls._sslobj) + object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)
        )
        assert function(pointer, 1 if ask else 0) == 1


def openssl_function(name: str) -> Any:
    """A function of the libssl that Python's _ssl module is linked to."""
    import _ssl

    return getattr(ctypes.CDLL(_ssl.__file__), name)
