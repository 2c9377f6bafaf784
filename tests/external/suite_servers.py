"""The servers that other projects' suites need, as Debian installs them.

They start and end as those of the benchmarks: in a temporary folder of their own, on a free port of
127.0.0.1, as another user where they refuse root.  They end with the run, also if it is killed.
"""

from __future__ import annotations

import sys
from pathlib import Path

# At the end, so that the installed goloop is the one that runs.
sys.path.append(str(Path(__file__).resolve().parents[2]))
from benchmarks.real_servers import PROGRAMS, Program, found, free_port, run_unprivileged

MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
"""
# Debian's script in /usr/sbin changes the user; the server would then outlive a killed run.
RABBITMQ = "/usr/lib/rabbitmq/bin/rabbitmq-server"
# Erlang starts epmd as a daemon if none runs on its port; this one ends with the server.
START_RABBITMQ = """\
export ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT=$2 RABBITMQ_DIST_PORT=$3
setpriv --pdeathsig TERM epmd &
until epmd -names > /dev/null 2>&1; do sleep 0.05; done
exec "$1"
"""


def _mariadb(place: Path, port: int) -> tuple[list[str], Path | None, bytes]:
    data = place / "data"
    make = [found("mariadb-install-db"), "--no-defaults", f"--datadir={data}"]
    run_unprivileged([*make, "--auth-root-authentication-method=normal"], place)
    command = [found("mariadbd"), "--no-defaults", f"--datadir={data}", f"--port={port}"]
    command += ["--bind-address=127.0.0.1", f"--socket={place}/socket", f"--tmpdir={place}"]
    return [*command, "--local-infile=1", "--innodb-flush-log-at-trx-commit=0"], None, b""


def _mosquitto(place: Path, port: int) -> tuple[list[str], Path | None, bytes]:
    configuration = place / "mosquitto.conf"
    configuration.write_text(MOSQUITTO.format(port=port))
    return [found("mosquitto"), "-c", str(configuration)], None, b""


def _nats(place: Path, port: int) -> tuple[list[str], Path | None, bytes]:
    command = [found("nats-server"), "-a", "127.0.0.1", "-p", str(port)]
    return [*command, "-js", "-sd", str(place)], None, b""


def _rabbitmq(place: Path, port: int) -> tuple[list[str], Path | None, bytes]:
    ports = [free_port(), free_port()]
    return ["/bin/sh", "-c", START_RABBITMQ, "sh", found(RABBITMQ), *map(str, ports)], None, b""


SERVERS = {
    **PROGRAMS,
    "mariadb": Program(
        ("mariadbd", "mariadb-install-db"), ("mariadbd", "--version"), _mariadb, "mariadb-server",
        refuses_root=True,
    ),
    "mosquitto": Program(
        ("mosquitto",), ("mosquitto", "-h"), _mosquitto, "mosquitto", refuses_root=True
    ),
    "nats": Program(("nats-server",), ("nats-server", "--version"), _nats, "nats-server"),
    "rabbitmq": Program(
        (RABBITMQ, "epmd", "setpriv"), ("dpkg-query", "-W", "rabbitmq-server"), _rabbitmq,
        "rabbitmq-server", refuses_root=True, start_seconds=60, end_seconds=30,
        variables={
            "HOME": "{place}",  # Erlang's cookie is there
            "RABBITMQ_NODENAME": "goloop-{port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": "{port}",
            "RABBITMQ_MNESIA_BASE": "{place}/mnesia",
            "RABBITMQ_LOG_BASE": "{place}/logs",
            "RABBITMQ_PID_FILE": "{place}/pid",
            "RABBITMQ_CONFIG_FILE": "{place}/rabbitmq",
            "RABBITMQ_ENABLED_PLUGINS_FILE": "{place}/plugins",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        },
    ),
}  # fmt: skip
