"""The real servers that rows need: nginx, Redis and PostgreSQL, as a distribution installs them.

A server has a temporary folder of its own with its configuration and data, and a free port of
127.0.0.1 or a Unix socket in that folder.  It ends with its row, and also if the benchmarks end
first.  Every setting that the rows depend on is in this file.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path

from benchmarks.clients import HELLO
from benchmarks.servers import START_SECONDS, told
from goloop.operations import server_ports
from goloop.operations.compare.measuring.turns import Failure

END_SECONDS = 5.0  # to end in an orderly way; PostgreSQL removes its shared memory
# Folders of servers in distributions, beside those of PATH.
FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")

NGINX = """\
daemon off;
master_process off;
pid {place}/pid;
error_log stderr error;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {place}/body;
  proxy_temp_path {place}/proxy;
  fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi;
  scgi_temp_path {place}/scgi;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  server {{
    listen 127.0.0.1:{port} backlog=1024;
    location / {{ return 200 "{hello}"; }}
  }}
}}
"""
# Durability costs time on the disk, which is not part of a row.
POSTGRES = {
    "listen_addresses": "127.0.0.1", "max_connections": "1000", "fsync": "off", "autovacuum": "off",
    "synchronous_commit": "off", "jit": "off", "logging_collector": "off",
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """A server: its programs, the command that prints its version, and how it starts and ends."""

    programs: tuple[str, ...]  # the first one is the server, the others help it to start
    version: str
    # Prepares the folder, and returns the command and a file that exists, with these bytes in it,
    # once the server is ready; no file if a connection to the port shows it.
    prepare: Callable[[Path, int], tuple[list[str], Path | None, bytes]]
    end: signal.Signals = signal.SIGTERM
    refuses_root: bool = False


def _nginx(place: Path, port: int) -> tuple[list[str], Path | None, bytes]:
    configuration = place / "nginx.conf"
    configuration.write_text(NGINX.format(place=place, port=port, hello=HELLO))
    command = [found("nginx"), "-p", str(place), "-c", str(configuration), "-e", "stderr"]
    return command, None, b""


def _redis(place: Path, port: int) -> tuple[list[str], Path | None, bytes]:
    command = [found("redis-server"), "--bind", "127.0.0.1", "--port", str(port)]
    command += ["--unixsocket", str(place / "socket"), "--dir", str(place)]
    return [*command, "--save", "", "--appendonly", "no"], None, b""


def _postgres(place: Path, port: int) -> tuple[list[str], Path | None, bytes]:
    data = place / "data"
    user = _unprivileged()
    made = subprocess.run(
        [found("initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=place,
        user=user and user.pw_uid, group=user and user.pw_gid, extra_groups=user and [],
    )  # fmt: skip
    if made.returncode != 0:
        raise Failure(f"initdb {told(made.returncode, made.stderr.strip().splitlines()[-1:][0])}")
    settings = {**POSTGRES, "port": str(port), "unix_socket_directories": str(place)}
    command = [found("postgres"), "-D", str(data)]
    command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    # pg_ctl waits for the same word.
    return command, data / "postmaster.pid", b"ready"


PROGRAMS = {
    "nginx": Program(("nginx",), "-v", _nginx),
    "redis": Program(("redis-server",), "--version", _redis),
    "postgres": Program(
        ("postgres", "initdb"), "--version", _postgres, signal.SIGQUIT, refuses_root=True
    ),
}


class RealServer:
    """A running server; `port` and `path` are its addresses, `pid` is its first process."""

    def __init__(self, name: str, core: int) -> None:
        """Start a server of PROGRAMS on a core and wait until it is ready; raises Failure."""
        self._program = program = PROGRAMS[name]
        self._directory = tempfile.TemporaryDirectory(prefix="goloop-bench-")
        self._process: subprocess.Popen[bytes] | None = None
        place = Path(self._directory.name)
        self.path = str(place / "socket")
        try:
            user = _unprivileged() if program.refuses_root else None
            if user is not None:
                os.chown(place, user.pw_uid, user.pw_gid)
            with server_ports.Port("127.0.0.1", reserve=False) as port:
                self.port = port.number
            command, ready, word = program.prepare(place, self.port)
            with (place / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=place,
                    user=user and user.pw_uid, group=user and user.pw_gid,
                    extra_groups=user and [], preexec_fn=_pinned(core, program.end),
                )  # fmt: skip
            self._wait(name, ready, word)
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """Return the id of the server's first process."""
        assert self._process is not None
        return self._process.pid

    def end(self) -> None:
        """End the server, and remove its files."""
        if self._process is not None:
            self._process.send_signal(self._program.end)
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._directory.cleanup()

    def _wait(self, name: str, ready: Path | None, word: bytes) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while not _is_ready(self.port, ready, word):
            status = self._process.poll()
            if status is not None:
                log = Path(self._directory.name, "log").read_text(errors="replace")
                raise Failure(f"{name} {told(status, ''.join(log.strip().splitlines()[-1:]))}")
            if time.monotonic() > deadline:
                raise Failure(f"{name} was not ready within {START_SECONDS:.0f} s")
            time.sleep(0.02)


def missing(name: str) -> str:
    """Return the reason why a server can't be started, or an empty string."""
    absent = [program for program in PROGRAMS[name].programs if not _where(program)]
    return f"{absent[0]} is not installed" if absent else ""


def _version(name: str) -> str:
    """Return a server's name and version."""
    program = PROGRAMS[name]
    done = subprocess.run(
        [found(program.programs[0]), program.version], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    # nginx version: nginx/1.22.1; Redis server v=7.0.15 sha=...; postgres (PostgreSQL) 15.8 (...)
    words = done.stdout.replace("v=", "").split()
    numbers = [word for word in words if any(map(str.isdigit, word))]
    return f"{name} {''.join(numbers[:1]).removeprefix('nginx/')}"


def found(program: str) -> str:
    """Return the path of an installed program; raises Failure."""
    path = _where(program)
    if path is None:
        raise Failure(f"{program} is not installed")
    return path


def _where(program: str) -> str | None:
    folders = [path for pattern in FOLDERS for path in sorted(glob(pattern), reverse=True)]
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), *folders]))


def _unprivileged() -> pwd.struct_passwd | None:
    """Return the user of a server that refuses root, or None if this process is not root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _pinned(core: int, end: signal.Signals) -> Callable[[], None]:
    """Pin between fork and exec, permit many files, and end with this process."""
    libc = ctypes.CDLL(None)  # loaded before the fork
    set_parent_death_signal = 1
    _soft, files = resource.getrlimit(resource.RLIMIT_NOFILE)

    def prepare() -> None:
        os.sched_setaffinity(0, {core})
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        libc.prctl(set_parent_death_signal, int(end))

    return prepare


def _is_ready(port: int, ready: Path | None, word: bytes) -> bool:
    try:
        if ready is not None:
            return word in ready.read_bytes()
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def versions(names: Sequence[str]) -> str:
    """Write the versions of the installed ones of some servers."""
    return ", ".join(_version(name) for name in names if not missing(name))
