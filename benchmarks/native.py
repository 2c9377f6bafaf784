"""Builds the programs without Python: load generators and ceilings.

The programs are built on demand into a cache directory of the repository, and again
whenever a source is newer than the program.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CACHE = ROOT / ".cache" / "benchmarks"


class BuildError(Exception):
    """A program could not be built; the text says why in one line."""


# The C programs: their sources in ceiling/, and additional compiler options.
_LOAD = (
    "epoll_load.c", "load_window.c", "load_pipe.c", "load_tls.c", "load_websocket.c", "load.h",
)  # fmt: skip
_PROGRAMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "epoll_load": (_LOAD, ()),
    "epoll_load_tls": (_LOAD, ("-DWITH_TLS", "-lssl", "-lcrypto")),
    "epoll_echo": (("epoll_echo.c",), ()),
    "uring_echo": (("uring_echo.c",), ()),
    "epoll_pipe": (("epoll_pipe.c",), ()),
    "machine": (("machine.c",), ("-pthread",)),
}


def c_program(name: str) -> Path:
    """Compile a program of ceiling/ and return its path."""
    files, options = _PROGRAMS[name]
    sources = [HERE / "ceiling" / file for file in files]
    program = CACHE / name
    if not _stale(program, sources):
        return program
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise BuildError("no C compiler is on PATH")
    compiled = [str(source) for source in sources if source.suffix == ".c"]
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra"]
    _build([compiler, *flags, "-o", "{}", *compiled, *options], program)
    return program


def uring_program() -> Path:
    """Compile the server on io_uring; raises BuildError if the kernel refuses io_uring."""
    program = c_program("uring_echo")
    _run([str(program), "check"])
    return program


def tls_program() -> Path:
    """Compile the load generator with OpenSSL; raises BuildError if OpenSSL is missing."""
    try:
        return c_program("epoll_load_tls")
    except BuildError as error:
        raise BuildError(f"a TLS client needs OpenSSL's headers and library: {error}") from error


def identity() -> Path:
    """Return a file with a self-signed certificate and its key, made when first needed.

    The key is ECDSA on P-256, which is common in today's certificates.
    """
    file = CACHE / "identity.pem"
    if file.exists():
        return file
    openssl = shutil.which("openssl")
    if openssl is None:
        raise BuildError("the command openssl, which makes the certificate, is not on PATH")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        certificate, key, both = (Path(directory) / name for name in ("cert", "key", "both"))
        _run([
            openssl, "req", "-x509", "-nodes", "-days", "36500", "-subj", "/CN=localhost",
            "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-out", str(certificate), "-keyout", str(key),
        ])  # fmt: skip
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        both.replace(file)
    return file


def go_program() -> Path:
    """Build load/ and return the program's path."""
    program = CACHE / "load"
    sources = [*(HERE / "load").glob("*.go"), ROOT / "go.mod"]
    if not _stale(program, sources):
        return program
    go = shutil.which("go")
    if go is None:
        raise BuildError("no Go toolchain is on PATH")
    _build([go, "build", "-buildvcs=false", "-trimpath", "-o", "{}", "./benchmarks/load"], program)
    return program


def version(ceiling: str) -> str:
    """Name a ceiling as the report does: gnet by the version that go.mod pins."""
    if ceiling.startswith("c-"):
        return f"{ceiling} (C)"
    if ceiling != "gnet":
        return ceiling
    pinned = re.search(r"panjf2000/gnet/v2 (v\S+)", (ROOT / "go.mod").read_text())
    return f"gnet {pinned[1]}" if pinned else "gnet"


def machine_costs(server: int, client: int) -> dict[str, str]:
    """Measure a system call and a wake-up between the two cores.

    The keys are those of ceiling/machine.c.  A cost that can't be measured is omitted, for
    example all of them if there is no C compiler.
    """
    try:
        command = [str(c_program("machine")), str(server), str(client)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (BuildError, OSError, subprocess.SubprocessError):
        return {}
    return {key: str(value) for key, value in json.loads(done.stdout).items()}


def _stale(program: Path, sources: list[Path]) -> bool:
    if not program.exists():
        return True
    built = program.stat().st_mtime
    return any(source.exists() and source.stat().st_mtime > built for source in sources)


def _build(command: list[str], program: Path) -> None:
    """Build under a temporary name and rename, so that a run never sees an incomplete file."""
    CACHE.mkdir(parents=True, exist_ok=True)
    partial = program.with_name(f"{program.name}.{os.getpid()}")
    filled = [part.replace("{}", str(partial)) for part in command]
    _run(filled)
    partial.replace(program)


def _run(command: list[str]) -> None:
    """Run a tool; raises BuildError with the reason from its output."""
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        lines = ran.stderr.strip().splitlines() or [f"exit status {ran.returncode}"]
        # A compiler's last line only says that it stopped.
        told = [line for line in lines if "error:" in line]
        raise BuildError(f"{Path(command[0]).name}: {(told or lines)[-1]}")
