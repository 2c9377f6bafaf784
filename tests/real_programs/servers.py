"""Servers that tests of this directory start, kill, stop and start again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tls_tools import identity

from goloop.operations import proc_stat
from real_programs.programs import APPS, PYTHON, TIME_LIMIT, Program, Programs, free_port

# A PostgreSQL of these tests refuses further connections.
POSTGRESQL_CONNECTIONS = 40

NGINX = """\
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  upstream application {{
{servers}
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://application; }}
  }}
}}
"""


class Server:
    """A server with a port of its own, which keeps its data while it is killed and started again.

    `ready` is the text of its output that shows that it answers, if a connection does not show it.
    """

    def __init__(
        self,
        programs: Programs,
        *words: str | Path,
        port: int,
        user: str | None = None,
        ready: str = "",
    ) -> None:
        self.port = port
        self._programs, self._words, self._user, self._ready = programs, words, user, ready
        self.start()

    def start(self) -> None:
        """Starts the server, and returns once it answers."""
        self._program: Program = self._programs.start(*self._words, port=self.port, user=self._user)
        if self._ready:
            self._program.until_says(self._ready)

    def is_running(self) -> bool:
        """Returns false after kill(), and if the server has ended by itself."""
        return self._program.process.poll() is None

    def kill(self) -> None:
        """Ends all processes of the server at once, as the loss of power does."""
        children = self._stop()
        self._program.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        wait_until(lambda: all(map(has_ended, children)))

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Stops all processes of the server, and lets them go on afterwards."""
        children = self._stop()
        try:
            for child in children:
                os.kill(child, signal.SIGSTOP)
            yield
        finally:
            for each in [*children, self._program.process.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, signal.SIGCONT)

    def _stop(self) -> list[int]:
        """Stops the server's first process, which starts the others, and returns those."""
        if not self.is_running():
            return []
        first = self._program.process.pid
        os.kill(first, signal.SIGSTOP)
        children = Path(f"/proc/{first}/task/{first}/children").read_text()
        return [int(each) for each in children.split()]


def has_ended(pid: int) -> bool:
    """Returns true if a process has ended, even if its parent does not know that yet."""
    return proc_stat.state(pid) in ("", "Z", "X")


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns once the condition is true."""
    deadline = time.monotonic() + TIME_LIMIT
    while not condition():
        assert time.monotonic() < deadline, "the condition does not become true"
        time.sleep(0.01)


async def reached(condition: Callable[[], bool]) -> None:
    """Returns once the condition is true; the caller has a limit on its time."""
    while not condition():
        await asyncio.sleep(0.005)


def start_redis(programs: Programs, folder: Path) -> Server:
    """Starts a Redis that keeps its data in memory; it listens at `folder`/redis.sock, too."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed: apt-get install redis-server")
    port = free_port()
    return Server(
        programs,
        *("redis-server", "--port", str(port), "--bind", "127.0.0.1"),
        *("--unixsocket", folder / "redis.sock"),
        *("--dir", folder, "--save", "", "--appendonly", "no"),
        port=port,
    )


def postgresql_programs() -> Path | None:
    """Returns the folder of initdb and postgres; Debian keeps them off PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb else None


class PostgreSQL(Server):
    """A PostgreSQL with the superuser "tester", in clear, over TLS, and at a Unix socket in `home`.

    It runs as another user where this process is root, which PostgreSQL refuses.  Its data are in
    `home`, and are not forced to the disk: they survive the end of its processes.
    """

    def __init__(self, programs: Programs) -> None:
        binaries = postgresql_programs()
        if binaries is None:
            pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
        self.home = Path(tempfile.mkdtemp(prefix="goloop-postgresql-"))
        try:
            self._make(programs, binaries, self.home)
        except BaseException:
            shutil.rmtree(self.home, ignore_errors=True)
            raise

    def _make(self, programs: Programs, binaries: Path, home: Path) -> None:
        """Makes the data in `home`, and starts the server."""
        user = None
        if os.geteuid() == 0:
            try:
                user = pwd.getpwnam("postgres").pw_name
            except KeyError:
                user = "nobody"
            shutil.chown(home, user)
        subprocess.run(
            [binaries / "initdb", "-D", home / "data", "-U", "tester", "--auth=trust", "--no-sync"],
            check=True, capture_output=True, user=user, cwd=home, timeout=60,
        )  # fmt: skip
        own = identity()
        for name, source in (("server.crt", own.certificate), ("server.key", own.key)):
            shutil.copy(source, home / name)
            if user is not None:
                shutil.chown(home / name, user)
            (home / name).chmod(0o600)
        port = free_port()
        super().__init__(
            programs,
            *(binaries / "postgres", "-D", home / "data", "-p", str(port), "-k", home, "-F"),
            *("-c", "listen_addresses=127.0.0.1", "-c", "ssl=on"),
            *("-c", f"ssl_cert_file={home}/server.crt", "-c", f"ssl_key_file={home}/server.key"),
            *("-c", f"max_connections={POSTGRESQL_CONNECTIONS}", "-c", "autovacuum=off"),
            port=port,
            user=user,
            ready="ready to accept connections",
        )

    def remove(self) -> None:
        """Kills the server, and removes its data."""
        self.kill()
        shutil.rmtree(self.home)


def start_nginx(programs: Programs, folder: Path, upstream: int, attempts: int = 1) -> Server:
    """Starts an nginx before the port `upstream`, which it tries so often before it answers 502."""
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if nginx is None:
        pytest.skip("nginx is not installed: apt-get install nginx")
    port = free_port()
    servers = "\n".join([f"    server 127.0.0.1:{upstream} max_fails=0;"] * attempts)
    settings = folder / "nginx.conf"
    settings.write_text(NGINX.format(folder=folder, port=port, servers=servers))
    return Server(programs, nginx, "-p", folder, "-c", settings, "-e", "stderr", port=port)


def start_proxy(
    programs: Programs, upstream: int, *, largest_slice: int, reset_after: int = 0
) -> Server:
    """Starts apps/faulty_proxy.py before the port `upstream`; its docstring has the arguments."""
    port = free_port()
    numbers = (port, upstream, largest_slice, reset_after)
    return Server(programs, *PYTHON, APPS / "faulty_proxy.py", *map(str, numbers), port=port)
