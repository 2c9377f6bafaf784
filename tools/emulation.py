"""CPython for aarch64 on a machine that is none: qemu's user mode, and what it runs.

`python(home, tag)` makes an environment whose interpreter is a script of two lines: it has
qemu run a CPython of that machine, with the libraries of a Debian of that machine.  The
host's kernel starts such a script like any program, so whatever starts `sys.executable`
gets an emulated interpreter again, and nothing need be registered with the kernel.

What is fetched stays in the user's cache folder: interpreters from Maven Central, held to
their checksums, and Debian's packages, which apt verifies; apt and Maven are asked as this
machine has them configured.  Where something can't be had, Skipped says what and why.
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

from environments import Failed, Interpreter, Skipped, run, say

MACHINE = "aarch64"
DEBIANS_NAME = "arm64"

# By version: of org.bytedeco:cpython, and the SHA-256 of its jar for linux-arm64.
MAVEN = {
    "3.12": ("3.12.1-1.5.10", "4876e6a9eb45c4e2faf7c9f9ef8cb9f16a462c45c3440d4c2e15e6acc8f4e0df"),
    "3.14": ("3.14.3-1.5.13", "75d0ac8f457bdb2d6b684796c282ce4da1e0c377a02b954de2c718f80901a15f"),
}
MAVEN_CENTRAL = "https://repo1.maven.org/maven2"
# What these interpreters leave to the system; libc6 is that of a Debian of 2023.
MAVEN_NEEDS = ("bookworm", ("libbz2-1.0", "libc6", "libcrypt1", "libffi8", "liblzma5",
                            "libuuid1", "libzstd1", "zlib1g"))  # fmt: skip
# The others, by version: the Debian that has it.
DEBIAN = {"3.11": "bookworm", "3.13": "trixie", "3.15": "sid"}
# Statically linked, so it runs wherever its machine's kernel does.
QEMU = ("bookworm", "qemu-user-static")
QEMU_PROGRAMS = (f"qemu-{MACHINE}-static", f"qemu-{MACHINE}")

DEBIAN_MIRROR = "http://deb.debian.org/debian"
DEBIAN_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# Seconds for one answer of a server, and for one run of apt-get.
ANSWER, APT_LIMIT = 30, 300


@dataclass(frozen=True)
class Emulated:
    """A CPython for the machine: its program, and the folder that has the machine's libraries."""

    tag: str
    program: Path
    system: Path


def interpreter(tag: str) -> Emulated:
    """The CPython 3.x of that name; fetched where it is not at hand."""
    if tag in MAVEN:
        folder = _from_maven(*MAVEN[tag])
        return Emulated(tag, folder / "bin" / f"python{tag}", _debian(*MAVEN_NEEDS, DEBIANS_NAME))
    if tag in DEBIAN:
        folder = _debian(DEBIAN[tag], (f"python{tag}",), DEBIANS_NAME)
        return Emulated(tag, folder / "usr" / "bin" / f"python{tag}", folder)
    raise Skipped(f"no CPython {tag} for {MACHINE} is known")


def emulator() -> str:
    """The path of qemu's user mode for the machine."""
    if os.uname().machine == MACHINE:
        raise Skipped(f"this is {MACHINE} itself, where the other targets test and try everything")
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
    """A fresh virtual environment of an interpreter, without pip; its program."""
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
    # By -0 it takes this script for its own program, as sys.executable and for the environment.
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
    """Has this machine's interpreter compile the library of the emulated one, and more.

    Bytecode is the version's, not the machine's, and takes long to make there.
    """
    library = interpreter(here.tag).program.parent.parent / "lib" / f"python{here.tag}"
    run([here.program, "-m", "compileall", "-q", "-j0", "-x", "/test/", library, *more], quiet=True)


# ---- what is fetched -----------------------------------------------------------------


def cache() -> Path:
    """Where it is kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / f"goloop-{MACHINE}"


@contextlib.contextmanager
def _made(name: str) -> Iterator[Path | None]:
    """A new folder that becomes the folder of that name if all goes well; None where it is."""
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
    """The tree in a jar of org.bytedeco:cpython."""
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
    """A file of Maven Central, from Maven's own store or from the net."""
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
            raise Skipped(f"{address} can't be had: {reason}") from None
    found = hashlib.sha256(target.read_bytes()).hexdigest()
    if found != digest:
        raise Failed(f"{path} has the SHA-256 {found} and not {digest}")


def maven_mirror(settings: Path) -> str:
    """Where the user's Maven looks for Central: a mirror that his settings name, or itself."""
    if not settings.exists():
        return MAVEN_CENTRAL
    for mirror in xml.etree.ElementTree.parse(settings).iterfind(".//{*}mirror"):
        of = (mirror.findtext("{*}mirrorOf") or "").split(",")
        if "central" in of or ("*" in of and "!central" not in of):
            return (mirror.findtext("{*}url") or MAVEN_CENTRAL).strip().rstrip("/")
    return MAVEN_CENTRAL


# ---- Debian --------------------------------------------------------------------------


def _debian(suite: str, packages: tuple[str, ...], architecture: str) -> Path:
    """A folder with packages of a Debian, and all that they depend on, unpacked."""
    digest = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:8]
    name = f"debian-{suite}-{architecture}-{digest}"
    with _made(name) as fresh:
        if fresh is not None:
            for package in _download(suite, packages, architecture, fresh / "apt"):
                _run("dpkg-deb", "--extract", str(package), str(fresh))
            shutil.rmtree(fresh / "apt")
            # Where /lib is a link to /usr/lib, what is in there stands in no package.
            if not (fresh / "lib").exists():
                (fresh / "lib").symlink_to("usr/lib")
    return cache() / name


def _download(suite: str, packages: tuple[str, ...], architecture: str, folder: Path) -> list[Path]:
    """What apt fetches for a machine that has nothing, with lists and a state of its own."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise Skipped("no apt-get and dpkg-deb here, to fetch Debian's packages with")
    if not DEBIAN_KEYS.exists():
        raise Skipped(f"no {DEBIAN_KEYS} here, to verify Debian's packages with")
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    listing = _output("apt-get", "indextargets", "--format", "$(REPO_URI)")
    (folder / "sources.list").write_text(
        f"deb [signed-by={DEBIAN_KEYS}] {debian_mirror(listing)} {suite} main\n"
    )
    # Beside what the machine's own configuration says, of proxies for example.
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
    """Of the repositories that apt knows, the first that may have all of Debian."""
    for address in listing.split():
        if re.search(r"/debian/?$", address):
            return address.rstrip("/")
    return DEBIAN_MIRROR


def _output(*command: str) -> str:
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError) as reason:
        raise Skipped(str(reason)) from None


def _run(*command: str, env: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command, env=env, timeout=APT_LIMIT, text=True, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as reason:
        raise Skipped(str(reason)) from None
    if done.returncode != 0:
        last = (done.stdout.strip() or f"status {done.returncode}").splitlines()[-1]
        raise Skipped(f"{shlex.join(command)}: {last}")
