"""The real servers that rows need: nginx, Redis and PostgreSQL, as a distribution installs them.

A server has a temporary folder of its own with its configuration and data, and a free port of
127.0.0.1 or a Unix socket in that folder.  It ends with its row, and also if the benchmarks end
first.  Every setting that the rows depend on is in this file.  The suites of tests/external start
their servers here, too, with programs of their own beside these.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
    version: tuple[str, ...]
    # Prepares the folder, and returns the command and a file that exists, with these bytes in it,
    # once the server is ready; no file if a connection to the port shows it.
    prepare: Callable[[Path, int], tuple[list[str], Path | None, bytes]]
    package: str  # of Debian
    end: signal.Signals = signal.SIGTERM
    start_seconds: float = START_SECONDS
    end_seconds: float = END_SECONDS
    refuses_root: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)  # {place} and {port} are replaced


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
    run_unprivileged(
        [found("initdb"), "-D", str(data), "-A", "trust", "-U", "postgres", "--no-sync"], place
    )
    settings = {**POSTGRES, "port": str(port), "unix_socket_directories": str(place)}
    command = [found("postgres"), "-D", str(data)]
    command += [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    # pg_ctl waits for the same word.
    return command, data / "postmaster.pid", b"ready"


PROGRAMS = {
    "nginx": Program(("nginx",), ("nginx", "-v"), _nginx, "nginx"),
    "redis": Program(("redis-server",), ("redis-server", "--version"), _redis, "redis-server"),
    "postgres": Program(
        ("postgres", "initdb"), ("postgres", "--version"), _postgres, "postgresql",
        signal.SIGQUIT, refuses_root=True,
    ),
}  # fmt: skip


class RealServer:
    """A running server; `port` and `path` are its addresses, `pid` is its first process."""

    def __init__(
        self, name: str, core: int | None, programs: Mapping[str, Program] = PROGRAMS
    ) -> None:
        """Start a server and wait until it is ready; raises Failure.

        `name` is a key of `programs`, `core` the only core that the server uses, None all of them.
        """
        self._program = program = programs[name]
        self._directory = tempfile.TemporaryDirectory(
            prefix="goloop-bench-", ignore_cleanup_errors=True
        )
        self._process: subprocess.Popen[bytes] | None = None
        place = Path(self._directory.name)
        self.path = str(place / "socket")
        try:
            user = unprivileged() if program.refuses_root else None
            if user is not None:
                os.chown(place, user.pw_uid, user.pw_gid)
            self.port = free_port()
            command, ready, word = program.prepare(place, self.port)
            values = {"place": place, "port": self.port}
            own = {key: text.format(**values) for key, text in program.variables.items()}
            with (place / "log").open("wb") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=place,
                    env={**os.environ, **own},
                    user=user and user.pw_uid, group=user and user.pw_gid,
                    extra_groups=user and [], preexec_fn=_prepared(core, program.end),
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
                self._process.wait(self._program.end_seconds)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._directory.cleanup()

    def _wait(self, name: str, ready: Path | None, word: bytes) -> None:
        assert self._process is not None
        limit = self._program.start_seconds
        deadline = time.monotonic() + limit
        while not is_ready(self.port, ready, word):
            status = self._process.poll()
            if status is not None:
                log = Path(self._directory.name, "log").read_text(errors="replace")
                raise Failure(f"{name} {told(status, ''.join(log.strip().splitlines()[-1:]))}")
            if time.monotonic() > deadline:
                raise Failure(f"{name} was not ready within {limit:.0f} s")
            time.sleep(0.02)


def missing(name: str, programs: Mapping[str, Program] = PROGRAMS) -> str:
    """Return the reason why a server can't be started, or an empty string."""
    absent = [program for program in programs[name].programs if not _where(program)]
    package = programs[name].package
    return f"{absent[0]} is not installed: apt-get install {package}" if absent else ""


def version(name: str, programs: Mapping[str, Program] = PROGRAMS) -> str:
    """Return a server's name and version; raises Failure if it is not installed."""
    program, *options = programs[name].version
    done = subprocess.run(
        [found(program), *options], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    # nginx version: nginx/1.22.1; Redis server v=7.0.15 sha=...; postgres (PostgreSQL) 15.8 (...);
    # mariadbd  Ver 10.11.6-MariaDB-...; mosquitto version 2.0.11; nats-server: v2.9.10
    number = re.search(r"\d+(\.\d+)+", done.stdout)
    return f"{name} {number[0] if number else ''}"


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now."""
    with server_ports.Port("127.0.0.1", reserve=False) as port:
        return port.number


def found(program: str) -> str:
    """Return the path of an installed program; raises Failure."""
    path = _where(program)
    if path is None:
        raise Failure(f"{program} is not installed")
    return path


def search_path() -> str:
    """Return PATH with the folders of servers after it."""
    folders = [path for pattern in FOLDERS for path in sorted(glob(pattern), reverse=True)]
    return os.pathsep.join([os.environ.get("PATH", ""), *folders])


def _where(program: str) -> str | None:
    return shutil.which(program, path=search_path())


def run_unprivileged(command: Sequence[str], place: Path) -> None:
    """Run a program that prepares the folder of a server that refuses root; raises Failure."""
    user = unprivileged()
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=place,
        user=user and user.pw_uid, group=user and user.pw_gid, extra_groups=user and [],
    )  # fmt: skip
    if done.returncode != 0:
        last = "".join(done.stderr.strip().splitlines()[-1:])
        raise Failure(f"{Path(command[0]).name} {told(done.returncode, last)}")


def unprivileged() -> pwd.struct_passwd | None:
    """Return the user of a server that refuses root, or None if this process is not root."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _prepared(core: int | None, end: signal.Signals) -> Callable[[], None]:
    """Pin between fork and exec, permit many files, and end with this process."""
    ended_with_parent = ends_with_parent(end)
    _soft, files = resource.getrlimit(resource.RLIMIT_NOFILE)

    def prepare() -> None:
        if core is not None:
            os.sched_setaffinity(0, {core})
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
        ended_with_parent()

    return prepare


def ends_with_parent(end: signal.Signals) -> Callable[[], None]:
    """Return a function for between fork and exec: the child gets `end` when this process ends."""
    libc = ctypes.CDLL(None)  # loaded before the fork
    set_parent_death_signal = 1
    return lambda: libc.prctl(set_parent_death_signal, int(end))


def is_ready(port: int, ready: Path | None, word: bytes) -> bool:
    """Return true if the file has these bytes; without a file, if the port accepts."""
    try:
        if ready is not None:
            return word in ready.read_bytes()
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def versions(names: Sequence[str]) -> str:
    """Write the versions of the installed ones of some servers."""
    return ", ".join(version(name) for name in names if not missing(name))
