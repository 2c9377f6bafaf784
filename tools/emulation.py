"""CPython for aarch64 on another machine, by qemu's user mode.

`python(home, tag)` creates an environment with a script of two lines as its interpreter: the
script starts qemu with a CPython and a Debian's libraries for aarch64.  The host's kernel runs
the script like any program.  So a program that starts `sys.executable` starts an emulated
interpreter again, without a binfmt registration in the kernel.

Downloads remain in the user's cache folder: interpreters from Maven Central, verified by
checksums, and Debian's packages, verified by apt.  Mirrors are those of the machine's
configuration of apt and Maven.  If a download is impossible, Skipped has the reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import urllib.request
import xml.etree.ElementTree
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import environments
from environments import Failed, Interpreter, Skipped, run, say

MACHINE = "aarch64"
DEBIANS_NAME = "arm64"

# Releases of org.bytedeco:cpython by Python version, with the SHA-256 of the linux-arm64 jar.
MAVEN = {
    "3.12": ("3.12.1-1.5.10", "4876e6a9eb45c4e2faf7c9f9ef8cb9f16a462c45c3440d4c2e15e6acc8f4e0df"),
    "3.14": ("3.14.3-1.5.13", "75d0ac8f457bdb2d6b684796c282ce4da1e0c377a02b954de2c718f80901a15f"),
}
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
# Libraries that these interpreters do not contain, from a Debian of 2023.
MAVEN_NEEDS = ("bookworm", ("libbz2-1.0", "libc6", "libcrypt1", "libffi8", "liblzma5",
                            "libuuid1", "libzstd1", "zlib1g"))  # fmt: skip
# Debian releases with the other Python versions.
DEBIAN = {"3.11": "bookworm", "3.13": "trixie", "3.15": "sid"}
# Statically linked, so that it runs with any C library.
QEMU = ("bookworm", "qemu-user-static")
QEMU_PROGRAMS = (f"qemu-{MACHINE}-static", f"qemu-{MACHINE}")

DEBIAN_MIRROR = "http://deb.debian.org/debian"
DEBIAN_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Timeouts in seconds, for a response of a server and for a run of apt-get.
ANSWER, APT_LIMIT = 30, 300


@dataclass(frozen=True)
class Emulated:
    """A CPython for aarch64: its program, and the folder with the libraries."""

    tag: str
    program: Path
    system: Path


def interpreter(tag: str) -> Emulated:
    """Returns the CPython with a tag like 3.14; downloads it if the cache does not have it."""
    if tag in MAVEN:
        folder = _from_maven(*MAVEN[tag])
        return Emulated(tag, folder / "bin" / f"python{tag}", _debian(*MAVEN_NEEDS, DEBIANS_NAME))
    if tag in DEBIAN:
        folder = _debian(DEBIAN[tag], (f"python{tag}",), DEBIANS_NAME)
        return Emulated(tag, folder / "usr" / "bin" / f"python{tag}", folder)
    raise Skipped(f"no source of CPython {tag} for {MACHINE} is known")


def emulator() -> str:
    """Returns the path of qemu's user mode for aarch64."""
    if os.uname().machine == MACHINE:
        raise Skipped(f"this machine is {MACHINE}, and the other targets test everything on it")
    for name in QEMU_PROGRAMS:
        if found := shutil.which(name):
            return found
    suite, package = QEMU
    folder = _debian(suite, (package,), _output("dpkg", "--print-architecture").strip())
    program = folder / "usr" / "bin" / QEMU_PROGRAMS[0]
    if not program.exists():
        raise Skipped(f"{package} has no {program.name}")
    return str(program)


def python(home: Path, tag: str) -> Path:
    """Creates a virtual environment without pip; returns the path of its interpreter."""
    qemu, base = emulator(), interpreter(tag)
    shutil.rmtree(home, ignore_errors=True)
    (home / "lib" / f"python{base.tag}" / "site-packages").mkdir(parents=True)
    (home / "pyvenv.cfg").write_text(
        f"home = {base.program.parent}\n"
        "include-system-site-packages = false\n"
        f"version = {base.tag}\n"
    )
    script = home / "bin" / "python"
    script.parent.mkdir()
    # -0: argv[0] is the script, so that sys.executable and the virtual environment are right.
    words = [qemu, "-L", str(base.system), "-0", str(script), str(base.program)]
    script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    script.chmod(0o755)
    done = subprocess.run(
        [script, "-I", "-c", "import os, ssl, sys; print(os.uname().machine, sys.executable)"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.stdout.split() != [MACHINE, str(script)]:
        raise Failed(f"CPython {base.tag} does not run under qemu: {done.stdout}{done.stderr}")
    return script


def compile_bytecode(here: Interpreter, *more: Path) -> None:
    """Compiles the emulated interpreter's library, and more, with this machine's interpreter.

    Bytecode depends on the version and not on the machine, and is slow to make under emulation.
    """
    library = interpreter(here.tag).program.parent.parent / "lib" / f"python{here.tag}"
    run([here.program, "-m", "compileall", "-q", "-j0", "-x", "/test/", library, *more], quiet=True)


# ---- downloads -----------------------------------------------------------------------


def cache() -> Path:
    """Returns the folder of all downloads."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / f"goloop-{MACHINE}"


@contextlib.contextmanager
def _made(name: str) -> Iterator[Path | None]:
    """Yields a new folder, renamed on success; None if a folder of that name exists."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (cache() / name).exists():
            yield None
            return
        say(f"fetching {name}")
        with tempfile.TemporaryDirectory(dir=cache()) as fresh:
            yield Path(fresh)
            os.rename(fresh, cache() / name)
            Path(fresh).mkdir()  # for TemporaryDirectory to remove


def _from_maven(version: str, digest: str) -> Path:
    """Returns the unpacked tree of a jar of org.bytedeco:cpython."""
    name = f"cpython-{version}-linux-{DEBIANS_NAME}"
    with _made(name) as fresh:
        if fresh is not None:
            jar = fresh / "jar"
            _fetch(f"org/bytedeco/cpython/{version}/{name}.jar", jar, digest)
            with zipfile.ZipFile(jar) as archive:
                archive.extractall(fresh)
            jar.unlink()
            tree = fresh / "org" / "bytedeco" / "cpython" / f"linux-{DEBIANS_NAME}"
            for path in (tree / "bin").iterdir():
                path.chmod(0o755)
            for path in tree.iterdir():
                path.rename(fresh / path.name)
    return cache() / name


def _fetch(path: str, target: Path, digest: str) -> None:
    """Copies a file of Maven Central from Maven's local repository, or downloads it."""
    stored = Path.home() / ".m2" / "repository" / path
    if stored.exists():
        shutil.copyfile(stored, target)
    else:
        address = f"{maven_mirror(Path.home() / '.m2' / 'settings.xml')}/{path}"
        try:
            with (
                urllib.request.urlopen(address, timeout=ANSWER) as answer,
                target.open("wb") as file,
            ):
                shutil.copyfileobj(answer, file)
        except OSError as reason:
            raise Skipped(f"{address} can't be downloaded: {reason}") from None
    found = hashlib.sha256(target.read_bytes()).hexdigest()
    if found != digest:
        raise Failed(f"{path} must have the SHA-256 {digest}, got {found}")


def maven_mirror(settings: Path) -> str:
    """Returns the mirror of Maven Central in the user's settings, or its own address."""
    if not settings.exists():
        return MAVEN_CENTRAL
    for mirror in xml.etree.ElementTree.parse(settings).iterfind(".//{*}mirror"):
        of = (mirror.findtext("{*}mirrorOf") or "").split(",")
        if "central" in of or ("*" in of and "!central" not in of):
            return (mirror.findtext("{*}url") or MAVEN_CENTRAL).strip().rstrip("/")
    return MAVEN_CENTRAL


# ---- Debian --------------------------------------------------------------------------


def _debian(suite: str, packages: tuple[str, ...], architecture: str) -> Path:
    """Returns a folder with packages of a Debian release and their dependencies, unpacked."""
    digest = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:8]
    name = f"debian-{suite}-{architecture}-{digest}"
    with _made(name) as fresh:
        if fresh is not None:
            for package in _download(suite, packages, architecture, fresh / "apt"):
                _run("dpkg-deb", "--extract", str(package), str(fresh))
            shutil.rmtree(fresh / "apt")
            # Packages do not contain the link from /lib to /usr/lib.
            if not (fresh / "lib").exists():
                (fresh / "lib").symlink_to("usr/lib")
    return cache() / name


def _download(suite: str, packages: tuple[str, ...], architecture: str, folder: Path) -> list[Path]:
    """Downloads packages with all dependencies, by apt with separate lists and state."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Skipped("apt-get and dpkg-deb are needed for Debian's packages")
    if not DEBIAN_KEYS.exists():
        raise Skipped(f"{DEBIAN_KEYS} is needed to verify Debian's packages")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    listing = _output("apt-get", "indextargets", "--format", "$(REPO_URI)")
    (folder / "sources.list").write_text(
        f"deb [signed-by={DEBIAN_KEYS}] {debian_mirror(listing)} {suite} main\n"
    )
    # In addition to the machine's own configuration, for example of proxies.
    (folder / "apt.conf").write_text(f"""
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "{_output("id", "-un").strip()}";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::Retries "1";
Acquire::http::Timeout "{ANSWER}";
Debug::NoLocking "true";
Dir::Cache "{folder}/cache";
Dir::State "{folder}";
Dir::State::status "{folder}/status";
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferencesparts "-";
""")
    environment = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
    _run("apt-get", "-qq", "update", env=environment)
    _run("apt-get", "-qq", "--yes", "--download-only", "install", *packages, env=environment)
    return sorted((folder / "cache" / "archives").glob("*.deb"))


def debian_mirror(listing: str) -> str:
    """Returns the first repository of apt's configuration that mirrors all of Debian."""
    for address in listing.split():
        if re.search(r"/debian/?$", address):
            return address.rstrip("/")
    return DEBIAN_MIRROR


def _output(*command: str) -> str:
    try:
        return environments.output(command)
    except (OSError, Failed) as reason:
        raise Skipped(str(reason)) from None


def _run(*command: str, env: dict[str, str] | None = None) -> None:
    wrong = environments.failure(command, env=env, limit=APT_LIMIT)
    if wrong is not None:
        raise Skipped(f"{shlex.join(command)}: {wrong.splitlines()[-1]}")
