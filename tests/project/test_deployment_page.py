"""The files of docs/deployment.md are accepted by the programs that read them, where these are."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import socket
import subprocess
import sys
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
    assert kinds - {"python", "sh"} == KINDS


# ---- Docker ------------------------------------------------------------------------------

# https://docs.docker.com/reference/dockerfile/
INSTRUCTIONS = {
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL",
    "ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
}  # fmt: skip


@pytest.mark.parametrize("text", blocks("dockerfile"))
def test_dockerfile(text: str) -> None:
    lines = [line for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    words = [line.split(maxsplit=1) for line in lines if not line.startswith("#")]
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
