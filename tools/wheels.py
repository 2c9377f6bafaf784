"""The wheels of a release, for `make release` (release.py), and the check `wheels`.

wheels() builds the source distribution in dist/ and, from the distribution and without a
network, a wheel for each interpreter and each machine, and a wheel of pure Python for all other
platforms.  Each wheel is examined, installed into a new environment and tried; wheels of the
other machine by an emulated interpreter, if one is available.

zig compiles them for a glibc of 2012: docs/internals/wheels.md.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import emulation
import environments
from environments import BUILD, ROOT, Environment, Failed, Interpreter, Skipped, run, say

MACHINES = ("x86_64", "aarch64")
GLIBC = "2.17"
# The largest page size of the machine's kernels.
PAGES = {"x86_64": 4096, "aarch64": 65536}


def wheels() -> None:
    """Builds, examines and tries the source distribution and all wheels."""
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    found = environments.all_interpreters()
    say("interpreters: " + ", ".join(f"{each.tag} ({each.program})" for each in found))
    tree = unpack_sdist(build_sdist(BUILD / "release" / "checkout", out), BUILD / "release")
    pure = build_wheel(tree, out, environments.default_interpreter(), None)
    examine(out)
    for base in found:
        attempt(base, pure, "--pure")
        for machine in MACHINES:
            wheel = build_wheel(tree, out, base, machine)
            inspect(wheel, machine)
            if machine == os.uname().machine:
                attempt(base, wheel)
            else:
                attempt_emulated(base, wheel)
    examine(out)
    bill_of_materials(out)
    for path in sorted(out.iterdir()):
        say(f"dist/{path.name}")


def check() -> bool:
    """The release for one interpreter: reproducible in two folders, examined and tried."""
    first, second = (BUILD / "release" / name for name in ("one", "the-other-folder"))
    base = environments.default_interpreter()
    machine = os.uname().machine
    listing: list[dict[str, bytes]] = []
    for folder in (first, second):
        shutil.rmtree(folder, ignore_errors=True)
        out = folder / "dist"
        tree = unpack_sdist(build_sdist(folder / "checkout", out), folder)
        build_wheel(tree, out, base, None)
        # With an empty cache, so that both builds compile all of Go.
        build_wheel(tree, out, base, machine, GOCACHE=str(folder / "cache"))
        listing.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
        shutil.rmtree(folder / "cache")
    differ = [name for name, content in listing[0].items() if listing[1].get(name) != content]
    if differ or listing[0].keys() != listing[1].keys():
        say(f"two builds differ: {', '.join(differ or sorted(listing[1]))}")
        return False
    examine(first / "dist")
    for wheel in (first / "dist").glob("*.whl"):
        if wheel.name.endswith("-any.whl"):
            attempt(base, wheel, "--pure")
        else:
            inspect(wheel, machine)
            attempt(base, wheel)
    return True


# ---- building -------------------------------------------------------------------


def tools() -> Environment:
    """Returns an environment with zig and the programs that examine wheels."""
    return environments.environment(environments.default_interpreter(), "wheels")


def build_sdist(checkout: Path, out: Path) -> Path:
    """Builds the source distribution from a copy of the tree's tracked files."""
    shutil.rmtree(checkout, ignore_errors=True)
    for source in environments.tree():
        path = checkout / source.relative_to(ROOT)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, path)
    return _hook("build_sdist", checkout, out, environments.default_interpreter(), {})


def unpack_sdist(sdist: Path, folder: Path) -> Path:
    """Unpacks a source distribution; returns the folder of its tree."""
    tree = folder / sdist.name.removesuffix(".tar.gz")
    shutil.rmtree(tree, ignore_errors=True)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return tree


def build_wheel(tree: Path, out: Path, base: Interpreter, machine: str | None, **more: str) -> Path:
    """Builds a wheel by the backend's hook; the wheel of pure Python if machine is None."""
    variables = {
        "ZIG": f"{tools().python} -m ziglang",
        # The tree contains all Go modules.
        "GOPROXY": "off",
        "GOMODCACHE": str(BUILD / "release" / "no-modules"),
        **more,
    }
    if machine is None:
        variables["GOLOOP_PURE"] = "1"
    else:
        variables["GOLOOP_TARGET"] = f"{machine}-linux-gnu.{GLIBC}"
    return _hook("build_wheel", tree, out, base, variables)


def _hook(name: str, tree: Path, out: Path, base: Interpreter, more: dict[str, str]) -> Path:
    made = environments.environment(base)
    variables = made.variables(PYTHONPATH=str(tree / "build_backend"), **more)
    # Variables that a developer may have set for other builds.
    for unwanted in ("GOLOOP_DEBUG", "GOLOOP_SANITIZE", "GOLOOP_WERROR", "CFLAGS", "LDFLAGS"):
        variables.pop(unwanted, None)
    out.mkdir(parents=True, exist_ok=True)
    answer = tree / "build-hook-answer"
    # setuptools changes sys.argv.
    script = "import sys, goloop_build; hook, out, answer = sys.argv[1:]"
    script += "; open(answer, 'w').write(getattr(goloop_build, hook)(out))"
    say(f"{name} on Python {base.tag} {more.get('GOLOOP_TARGET', '')}")
    run([made.python, "-c", script, name, out, answer], env=variables, cwd=tree, quiet=True)
    return out / answer.read_text()


def bill_of_materials(out: Path) -> None:
    """Copies the SBOM of one wheel of each machine to dist/: all wheels of a machine share it."""
    for machine in MACHINES:
        wheel = next(out.glob(f"*_{machine}.whl"))
        with zipfile.ZipFile(wheel) as archive:
            name = next(each for each in archive.namelist() if each.endswith(".cdx.json"))
            package = "-".join(wheel.name.split("-")[:2])
            (out / f"{package}-{machine}.cdx.json").write_bytes(archive.read(name))


# ---- examining ------------------------------------------------------------------


def examine(out: Path) -> None:
    """Checks the metadata of the distributions and the contents of the wheels."""
    python = tools().python
    wheels = sorted(out.glob("*.whl"))
    run([python, "-m", "twine", "check", "--strict", *wheels, *out.glob("*.tar.gz")])
    run([python, "-m", "check_wheel_contents", *wheels])


def inspect(wheel: Path, machine: str) -> None:
    """Checks the symbol versions, sections and alignment of a wheel's libraries."""
    made = tools()
    show = [str(made.python), "-m", "auditwheel", "show", str(wheel)]
    done = environments.output(show, env=made.variables())
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    if f'the following platform tag: "{tag}"' not in " ".join(done.split()):
        print(done)
        raise Failed(f"{wheel.name} must be consistent with the platform tag {tag}")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            content = archive.read(name)
            if not content.startswith(b"\x7fELF"):
                continue
            with tempfile.NamedTemporaryFile() as library:
                library.write(content)
                library.flush()
                shown = ["--dynamic", "--sections", "--segments"]
                listing = environments.output(["readelf", "--wide", *shown, library.name])
            # The Go library has the names of its functions, for profilers.
            unwanted = r"\(RUNPATH\)|\(RPATH\)| \.debug_"
            if "libgoloop" not in name:
                unwanted += r"| \.symtab "
            if re.search(unwanted, listing):
                raise Failed(f"{name} of {wheel.name} has a RUNPATH or is not stripped")
            if not aligned(listing, PAGES[machine]):
                raise Failed(f"{name} of {wheel.name} must be aligned to {PAGES[machine]} bytes")


def aligned(listing: str, page: int) -> bool:
    """Returns true if all segments in readelf's listing are aligned to the page size."""
    found = re.findall(r"^ *LOAD .* 0x([0-9a-f]+)$", listing, re.MULTILINE)
    return bool(found) and all(int(each, 16) >= page for each in found)


def attempt(base: Interpreter, wheel: Path, *arguments: str) -> None:
    """Installs a wheel into a new environment and tries it."""
    home = BUILD / "attempt"
    shutil.rmtree(home, ignore_errors=True)
    run([base.program, "-m", "venv", "--without-pip", home], quiet=True)
    _use(base, home, wheel, *arguments)


def attempt_emulated(base: Interpreter, wheel: Path) -> None:
    """Installs and tries a wheel of another machine, or prints why that is impossible."""
    home = BUILD / "attempt"
    try:
        emulation.python(home, base.tag)
        emulation.compile_bytecode(base)
    except Skipped as reason:
        say(f"{wheel.name} was only examined: {reason}")
        return
    say(f"{wheel.name}, under emulation")
    _use(base, home, wheel)


def _use(base: Interpreter, home: Path, wheel: Path, *arguments: str) -> None:
    pip = ["-m", "pip", f"--python={home}", "install", "-q", "--no-deps", "--no-index"]
    # The pip of the same Python version: an older Python's pip may not run on it.
    run([environments.environment(base).python, *pip, wheel], quiet=True)
    # Neither Go nor a compiler is needed to run it.
    variables = {"PATH": "", "HOME": str(home)}
    run([home / "bin" / "python", "-I", ROOT / "tools" / "try_wheel.py", *arguments], env=variables)
    run([home / "bin" / "goloop", "--version"], env=variables)
    shutil.rmtree(home)
