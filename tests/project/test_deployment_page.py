"""The files of docs/deployment.md are accepted by the programs that read them, where these are.

Their commands run as written, but for the folders and the port: the steps of the Dockerfile in a
virtual environment, the containers' and the unit's command with the page's application.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tls_tools import identity

PAGE = Path(__file__).resolve().parents[2] / "docs" / "deployment.md"

# Kinds of blocks beside programs and commands; each kind has a test below.
KINDS = {"dockerfile", "yaml", "ini", "nginx"}

pytestmark = pytest.mark.goloop_only("about a page of goloop's")


def blocks(kind: str) -> list[str]:
    found = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    return found


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which(str(words[0])) is None:
        pytest.skip(f"no {words[0]} on this machine")
    return subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False, timeout=60
    )


def needs(module: str) -> Any:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: pip install --group tools")
    return importlib.import_module(module)


def test_each_kind_of_file_has_a_test() -> None:
    kinds = set(re.findall(r"^```(\w+)$", PAGE.read_text(), re.MULTILINE))
    assert kinds - {"python", "sh", "text"} == KINDS


# ---- the application ---------------------------------------------------------------------


def written(folder: Path) -> None:
    """Write the page's app.py and requirements.txt into a folder, or skip without the packages."""
    (folder / "app.py").write_text(blocks("python")[0])
    (folder / "requirements.txt").write_text(blocks("text")[0])
    for line in blocks("text")[0].split():
        if importlib.util.find_spec(line) is None:
            pytest.skip(f"{line} is not installed: pip install --group real")


class OfUnix(http.client.HTTPConnection):
    """A connection to a server on a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(self._path)


@contextlib.contextmanager
def served(
    words: list[str], folder: Path, address: int | str, path: str, **environ: str
) -> Iterator[subprocess.Popen[str]]:
    """A server by the words of a recipe, that has answered for a path at a port or a Unix socket.

    At the end of the block it must end well by SIGTERM, and must have reported no trouble.
    """
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **environ}
    with (folder / "said").open("w+") as said:
        process = subprocess.Popen(words, cwd=folder, env=env, stdout=said, stderr=said, text=True)
        try:
            for _ in range(600):
                tcp = http.client.HTTPConnection("127.0.0.1", address, timeout=20)
                connection = OfUnix(address) if isinstance(address, str) else tcp
                with contextlib.suppress(OSError), contextlib.closing(connection):
                    connection.request("GET", path)
                    assert connection.getresponse().status == 200
                    break
                assert process.poll() is None, (folder / "said").read_text()
                time.sleep(0.1)
            else:
                pytest.fail(f"no answer\n{(folder / 'said').read_text()}")
            yield process
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        finally:
            process.kill()
            process.wait()
    text = (folder / "said").read_text()
    assert "Application shutdown complete" in text
    assert "Traceback" not in text


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


# ---- Docker ------------------------------------------------------------------------------

# https://docs.docker.com/reference/dockerfile/
INSTRUCTIONS = {
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL",
    "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip


def steps(text: str) -> list[list[str]]:
    """Each instruction of a Dockerfile, and the rest of its line."""
    lines = [line for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    return [line.split(maxsplit=1) for line in lines if not line.startswith("#")]


def before_the_first_release() -> list[list[str]]:
    """The Dockerfile's steps with the replacement that the page has before the first release."""
    whole, *replacement = blocks("dockerfile")
    found = steps(whole)
    for text in replacement:
        at = [number for number, (_, rest) in enumerate(found) if rest.startswith("pip install")]
        assert len(at) == 1
        found[at[0] : at[0] + 1] = steps(text)
    return found


def make_image(found: list[list[str]], context: Path, image: Path) -> list[str]:
    """Follow the steps, with a virtual environment for the image; return the words of CMD."""
    home = image.parent / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, timeout=100)
    # The packages of the tests are those of the index.
    (packages,) = home.glob("lib/python*/site-packages")
    lent = str(next(path for path in sys.path if path.endswith("site-packages")))
    (packages / "lent.pth").write_text(f"import site; site.addsitedir({lent!r})\n")
    pip = shlex.join([sys.executable, "-m", "pip", f"--python={home}"])
    for name, text in (("pip", f'PIP_NO_INDEX=1 exec {pip} "$@"'), ("useradd", "exit 0")):
        (home / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (home / "bin" / name).chmod(0o755)
    env = os.environ | {"PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    command: list[str] = []
    for word, rest in found:
        if word == "RUN":
            done = subprocess.run(
                ["sh", "-c", rest], cwd=image, env=env, capture_output=True, text=True, timeout=100
            )
            assert done.returncode == 0, f"{rest}\n{done.stdout}{done.stderr}"
        elif word == "COPY":
            source, target = rest.split()
            copy = shutil.copytree if (context / source).is_dir() else shutil.copy
            copy(context / source, image / target)
        elif word == "CMD":
            command = json.loads(rest)
    return command


def test_the_dockerfiles_steps_run(tmp_path: Path) -> None:
    context, image = tmp_path / "context", tmp_path / "image"
    context.mkdir()
    image.mkdir()
    written(context)
    found = before_the_first_release()
    if ["COPY", "wheels wheels"] in found:
        pytest.importorskip("setuptools", reason="the build's requirement")
        build = "import goloop_build; goloop_build.build_wheel(__import__('sys').argv[1])"
        env = os.environ | {"GOLOOP_PURE": "1", "PYTHONPATH": "build_backend"}
        (context / "wheels").mkdir()
        subprocess.run(
            [sys.executable, "-c", build, context / "wheels"],
            cwd=PAGE.parents[1], env=env, capture_output=True, check=True, timeout=100,
        )  # fmt: skip
    command = make_image(found, context, image)
    port = free_port()
    with served([*command, f"--port={port}"], image, port, "/healthz"):
        pass
    # The steps without the replacement, as after the first release.
    image = tmp_path / "later" / "image"
    image.mkdir(parents=True)
    assert make_image(steps(blocks("dockerfile")[0]), context, image) == command


def test_dockerfile() -> None:
    words = before_the_first_release()
    assert {word for word, _ in words} <= INSTRUCTIONS
    assert words[0][0] == "FROM"
    ends = [rest for word, rest in words if word in ("CMD", "ENTRYPOINT")]
    # As a list it is no shell's child, which would keep SIGTERM from it.
    assert len(ends) == 1
    assert all(isinstance(each, str) for each in json.loads(ends[0]))
    # The last word on the user is not root.
    assert [rest for word, rest in words if word == "USER"][-1] != "root"


# ---- Kubernetes ----------------------------------------------------------------------------


@pytest.mark.parametrize("text", blocks("yaml"))
def test_kubernetes_takes_the_manifest(text: str) -> None:
    validate = needs("kubernetes_validate")
    resource = needs("yaml").safe_load(text)
    newest = validate.latest_version()
    validate.validate(resource, newest, strict=True)
    # The validation knows mistakes.
    container = resource["spec"]["template"]["spec"]["containers"][0]
    container["readinessProb"] = container.pop("readinessProbe")
    with pytest.raises(validate.ValidationError):
        validate.validate(resource, newest, strict=True)


def test_kubernetes_command_and_probes_fit_the_application(tmp_path: Path) -> None:
    written(tmp_path)
    resource = needs("yaml").safe_load(blocks("yaml")[0])
    container = resource["spec"]["template"]["spec"]["containers"][0]
    environ = {each["name"]: each["value"] for each in container["env"]}
    (port,) = [each["containerPort"] for each in container["ports"]]
    used = free_port()
    probes = [container[name]["httpGet"] for name in ("startupProbe", "readinessProbe")]
    assert [probe["port"] for probe in probes] == [port, port]
    for probe in probes:
        with served(
            [*container["args"], f"--port={used}"], tmp_path, used, probe["path"], **environ
        ):
            pass


# ---- systemd -------------------------------------------------------------------------------


def complaints(unit: Path) -> list[str]:
    """systemd-analyze looks at units of the machine, too, and finds faults with these."""
    done = run("systemd-analyze", "verify", unit)
    return [line for line in done.stderr.splitlines() if unit.name in line]


@pytest.mark.parametrize("text", blocks("ini"))
def test_systemd_takes_the_unit(text: str, tmp_path: Path) -> None:
    unit = tmp_path / "goloop-recipe.service"
    program = re.search(r"^ExecStart=(\S+)", text, re.MULTILINE)
    assert program
    unit.write_text(text.replace(program[1], sys.executable))
    assert complaints(unit) == []
    unit.write_text(text.replace("WatchdogSec=", "WatchdogSecs="))
    assert len(complaints(unit)) >= 1


@pytest.mark.parametrize("text", blocks("ini"))
def test_the_unit_reports_to_systemd_and_ends_in_time(text: str, tmp_path: Path) -> None:
    written(tmp_path)
    settings = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    assert settings["Wants"] == settings["After"] == "network-online.target"
    program, _, rest = settings["ExecStart"].partition(" ")
    assert Path(program).parent == Path(settings["WorkingDirectory"], ".venv", "bin")
    directory = f"/run/{settings['RuntimeDirectory']}"
    # Not in tmp_path, which may be longer than the address of a Unix socket.
    with tempfile.TemporaryDirectory(prefix="goloop") as run_folder:
        words = rest.replace(directory, run_folder).split()
        address = words[words.index("--uds") + 1]
        assert address.startswith(run_folder)
        words = [str(Path(sys.executable).parent / Path(program).name), *words]
        environ = dict(each.split("=", 1) for each in settings["Environment"].split())
        messages = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with messages:
            messages.bind(f"{run_folder}/notify")
            messages.settimeout(30)
            environ |= {"NOTIFY_SOCKET": f"{run_folder}/notify", "WATCHDOG_USEC": "200000"}
            with served(words, tmp_path, address, "/healthz", **environ):
                assert [messages.recv(100) for _ in range(2)] == [b"READY=1", b"WATCHDOG=1"]
            said = [messages.recv(100)]
            while said[-1] == b"WATCHDOG=1":
                said.append(messages.recv(100))
            assert said[-1] == b"STOPPING=1"
        (upstream,) = re.findall(r"server unix:(.*);", blocks("nginx")[0])
        assert upstream.replace(directory, run_folder) == address


# ---- nginx ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", blocks("nginx"))
def test_nginx_takes_the_configuration(text: str, tmp_path: Path) -> None:
    own = identity()
    for directive, path in (("ssl_certificate", own.certificate), ("ssl_certificate_key", own.key)):
        text, count = re.subn(rf"^( +{directive}) .*;$", rf"\1 {path};", text, flags=re.MULTILINE)
        assert count == 1
    # To look at a configuration, nginx binds its ports: none that only root may have.
    with socket.create_server(("127.0.0.1", 0)) as free:
        text = text.replace("listen 443", f"listen 127.0.0.1:{free.getsockname()[1]}")

    def accepted(server: str) -> subprocess.CompletedProcess[str]:
        made = tmp_path / "nginx.conf"
        folders = "".join(
            f"{name}_temp_path {tmp_path}/{name};\n"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        made.write_text(
            f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\n"
            f"http {{\naccess_log off;\n{folders}{server}}}\n"
        )
        return run("nginx", "-t", "-p", tmp_path, "-c", made)

    done = accepted(text)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr
    assert accepted(text.replace("keepalive 32", "keepalives 32")).returncode != 0
