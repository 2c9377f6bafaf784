"""The two artefacts of goloop, as setuptools commands.

`build_ext` compiles goloop._core, the C extension: one for each interpreter,
not linked to Go.  `build_golib` runs Go to build the library, which includes no
header of Python: one for each machine, opened by the extension when the first
loop is made.  Both build into the staging directory of a wheel, in place for
`--inplace`, or in place for an editable install.

The environment chooses variants:
  GOLOOP_PURE=1            neither artefact: the wheel for machines for which goloop can't be
                           built, which uses asyncio's own loop; 0: an error on such machines
  GOLOOP_TARGET=...        for a release: see target.py
  GOLOOP_DEBUG=1           for a debugger: -O0 -g and assertions in the extension; symbols and
                           DWARF in the Go library, and its own packages not optimised
and of the extension alone:
  GOLOOP_SANITIZE=address  AddressSanitizer
  GOLOOP_SANITIZE=thread   ThreadSanitizer, with tools/tsan in place of an instrumented interpreter
  GOLOOP_WERROR=1          warnings are errors
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Iterator
from glob import glob
from typing import Any

from setuptools import Command, Extension
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

from . import address, toolchain
from .elf import hide_constructors
from .target import target

PACKAGE = "goloop"
# Not *.so: Python and its tools would treat such a file as an extension module.
LIBRARY = "libgoloop.so.1"
GO_PACKAGE = "./pybridge/golib"
GO_MODULE = address.go_module()
# Files that replace files of Go's runtime, by their paths in Go's sources.
GO_OVERLAY = {
    f"runtime/{name}": os.path.join("pybridge", "golib", "_runtime", name)
    for name in ("env_posix.go", "netpoll_epoll.go")
}
# Replacements within a file of Go's runtime.  A text that a Go version does not have is left out.
# 1. Go reads GODEBUG once before it reads the rest of the environment, see env_posix.go.
# 2. and 3. While a processor (P) is idle, Go's monitor thread (runtime.sysmon) has no work: it
# wakes up each 100 ms instead of 10 ms, and preempts no thread for goroutines that do not exist
# (pybridge/golib/runtime_gomaxprocs.go).
# 4. A C thread that calls Go runs on a goroutine's stack, and so does a C handler without
# SA_ONSTACK that a signal calls meanwhile (ncurses sets SIGWINCH and SIGTSTP so). Go's 8 KiB are
# too few for a handler, and no guard page ends them. Of 1 MiB only the touched pages take memory;
# the stack never shrinks (gcshrinkstackoff).
# 5. A thread keeps the signal mask that it was started with: Go would unblock SIGCHLD, SIGPROF and
# the signals of faults, and so take them from a program that blocks them in its own threads.
# 6. Go reads the container's CPU limit at its start although containermaxprocs=0 forbids its use,
# for a counter of its own: that takes a tenth of the start.
GO_CHANGES = {
    "runtime/proc.go": [
        ('const prefix = "GODEBUG="', 'const prefix = "GOLOOP_GODEBUG="'),
        (
            "\t\tif delay > 10*1000 { // up to 10ms\n\t\t\tdelay = 10 * 1000\n\t\t}\n",
            "\t\tdelay = 10 * 1000\n"
            "\t\tif sched.npidle.Load() > 0 {\n\t\t\tdelay = 100 * 1000\n\t\t}\n",
        ),
        (
            "} else if pd.schedwhen+forcePreemptNS <= now {",
            "} else if pd.schedwhen+forcePreemptNS <= now &&\n"
            "\t\t\t(!runqempty(pp) || sched.nmspinning.Load()+sched.npidle.Load() == 0) {",
        ),
        ("gp := malg(4096)", "gp := malg(1 << 20)"),
        (
            "\tdefaultGOMAXPROCSInit()\n",
            "\tif debug.containermaxprocs > 0 {\n\t\tdefaultGOMAXPROCSInit()\n\t}\n",
        ),
    ],
    "runtime/signal_unix.go": [
        (
            "\tfor i := range sigtable {\n"
            "\t\tif !blockableSig(uint32(i)) {\n\t\t\tsigdelset(&nmask, i)\n\t\t}\n\t}\n",
            "",
        ),
    ],
}
# The linker's list of the Go library's exported symbols.
EXPORTS = os.path.join("pybridge", "golib", "exports.map")
# Functions of libc that runtime/cgo calls, for which the library has replacements (__wrap_...):
# runtime_first_thread_stack.c, runtime_thread.c and runtime_mapped_memory.c of pybridge/golib.
WRAPPED = ("pthread_getattr_np", "pthread_create", "mmap", "munmap")
ABI = "pybridge/abi.h"
# The source file that a build with ThreadSanitizer adds to the extension.
TSAN = os.path.join("tools", "tsan", "interpreter.c")

# asyncpreemptoff: Go must not preempt goroutines with SIGURG, or a Python handler for that signal
# would run although the signal was not sent to the program.  containermaxprocs: reading the
# container's CPU limit would keep two files open.  profstackdepth: each thread would reserve memory
# for stacks of Go's profiler, which goloop does not use.  gcshrinkstackoff: see GO_CHANGES, 4.
GO_LINK_FLAGS = (
    "-X runtime.godebugDefault="
    "asyncpreemptoff=1,containermaxprocs=0,profstackdepth=0,gcshrinkstackoff=1"
)

# Messages of `go build` about a module that it cannot download, from all layers of the network.
UNREACHABLE = re.compile(
    r"dial tcp|no such host|proxyconnect|i/o timeout|connection refused|network is unreachable"
    r"|module lookup disabled|TLS handshake|x509:|unrecognized import path|Service Unavailable"
    r"|4\d\d [A-Z][a-z]+|5\d\d [A-Z][a-z]+"
)


def _debug() -> bool:
    return os.environ.get("GOLOOP_DEBUG") == "1"


# ---- the C extension ---------------------------------------------------------


def core_extension() -> Extension:
    """Returns goloop._core: one translation unit, module.c, which includes the other files."""
    compile_flags = [
        "-std=c11",
        "-O2",
        "-fvisibility=hidden",
        "-fno-semantic-interposition",
        "-Wall",
        "-Wextra",
        "-Wstrict-prototypes",
        "-Wno-unused-parameter",
        "-Wno-missing-field-initializers",
        # METH_FASTCALL and METH_NOARGS functions are cast to PyCFunction by contract.
        "-Wno-cast-function-type",
    ]
    link_flags = ["-Wl,--as-needed", "-ldl"]
    if _debug():
        compile_flags += ["-O0", "-g", "-UNDEBUG"]
    sanitize = os.environ.get("GOLOOP_SANITIZE")
    if sanitize:
        compile_flags += [f"-fsanitize={sanitize}", "-fno-omit-frame-pointer", "-O1", "-g"]
        compile_flags += ["-UNDEBUG"]
        link_flags += [f"-fsanitize={sanitize}"]
    sources = ["pybridge/core/module.c"]
    if sanitize == "thread":
        sources.append(TSAN)
        # ThreadSanitizer does not model fences; the extension never relies on a fence alone.
        compile_flags += ["-finstrument-functions", "-Wno-tsan"]
        compile_flags += ["-finstrument-functions-exclude-file-list=include/python"]
        link_flags += [f"-Wl,--wrap={name}" for name in wrapped_by(TSAN)]
    if os.environ.get("GOLOOP_WERROR") == "1":
        compile_flags += ["-Werror"]
    return Extension(
        "goloop._core",
        sources=sources,
        depends=[*sorted(glob("pybridge/core/**/*.[ch]", recursive=True)), "pybridge/abi.h"],
        include_dirs=["pybridge", "pybridge/core"],
        extra_compile_args=compile_flags,
        extra_link_args=link_flags,
        language="c",
    )


def wrapped_by(path: str) -> list[str]:
    """Returns the functions of Python's C API for which a file has a wrapper."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    names = re.findall(r"^CALL\((\w+)\)$|__wrap_(\w+)\(", text, re.MULTILINE)
    memory = re.findall(r"^MEMORY\((\w+)\)$", text, re.MULTILINE)
    made = [first + last for first in memory for last in ("Malloc", "Calloc", "Realloc", "Free")]
    return sorted({call or own for call, own in names} | set(made))


class BuildExtension(build_ext):
    """A build_ext that selects an existing compiler and compiles again after changed flags."""

    def run(self) -> None:
        """Compiles the extensions that are out of date."""
        toolchain.check_machine()
        # distutils takes the compiler from CC, then from Python's own build.
        os.environ["CC"] = compiler()
        super().run()

    def get_ext_filename(self, fullname: str) -> str:
        """Returns the file name, with the suffix of the target machine."""
        name = str(super().get_ext_filename(fullname))  # type: ignore[no-untyped-call]
        release = target()
        if release is None:
            return name
        here = str(sysconfig.get_config_var("EXT_SUFFIX"))
        return name.removesuffix(here) + release.extension_suffix()

    def build_extension(self, ext: Extension) -> None:
        """Compiles one extension, all of it again if the flags have changed; stores the flags."""
        release = target()
        if release is not None:
            # The interpreter's own options could contain library paths of the machine.
            command = shlex.split(release.compiler())
            self.compiler.set_executables(
                compiler_so=[*command, *release.compile_flags()],
                linker_so=[*command, "-shared", "-s"],
            )
            for folder in release.headers(os.path.join(self.build_temp, "headers")):
                self.compiler.add_include_dir(folder)
        flags = " ".join([os.environ["CC"], *ext.extra_compile_args, *ext.extra_link_args])
        note = self.get_ext_fullpath(ext.name) if self.inplace else ""
        note = os.path.join(self.build_temp, "flags-" + (os.path.basename(note) or "staged"))
        if not _reads(note, flags):
            self.force = True
        super().build_extension(ext)
        os.makedirs(os.path.dirname(note), exist_ok=True)
        with open(note, "w", encoding="utf-8") as file:
            file.write(flags)


def _reads(path: str, text: str) -> bool:
    """Returns true if the file can be read and has exactly this text."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read() == text
    except OSError:
        return False


# ---- the Go library -----------------------------------------------------------


class BuildGoLibrary(Command):
    """Builds the library and puts it beside the package's modules.

    Implements setuptools' SubCommand protocol, so wheels list the file and
    editable installs find it in the source tree.
    """

    description = "build the Go library"
    user_options = [
        ("build-lib=", "b", "directory of the staged package"),
        ("inplace", "i", "put the library into the source tree"),
    ]
    boolean_options = ["inplace"]

    build_lib: str | None
    editable_mode: bool

    def initialize_options(self) -> None:
        """Sets the options to their defaults."""
        self.build_lib = None
        self.inplace = False
        self.editable_mode = False

    def finalize_options(self) -> None:
        """Takes the staging directory from the command `build`."""
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Builds the library, and replaces the installed file if the content differs."""
        with open(build_go_library(), "rb") as file:
            built = hide_constructors(file.read())
        target = self._target()
        with contextlib.suppress(FileNotFoundError), open(target, "rb") as file:
            if file.read() == built:
                return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        # Running processes may have mapped the old file: it is replaced, never overwritten.
        handle, fresh = tempfile.mkstemp(dir=os.path.dirname(target), suffix=".new")
        with open(handle, "wb") as file:
            file.write(built)
        os.chmod(fresh, 0o755)
        os.replace(fresh, target)

    def _target(self) -> str:
        """Returns the path of the library, in the source tree or in the staging directory."""
        if self.inplace or self.editable_mode:
            return os.path.join(PACKAGE, LIBRARY)
        assert self.build_lib is not None
        return os.path.join(self.build_lib, PACKAGE, LIBRARY)

    def get_outputs(self) -> list[str]:
        """Returns the path of the staged library."""
        assert self.build_lib is not None
        return [os.path.join(self.build_lib, PACKAGE, LIBRARY)]

    def get_output_mapping(self) -> dict[str, str]:
        """Returns nothing: no staged file has a counterpart in the source tree."""
        return {}

    def get_source_files(self) -> list[str]:
        """Returns the library's sources, for the source distribution."""
        files = ["go.mod", "go.sum", ABI]
        for folder in ("netloop", "timers", "transports", "pybridge/golib"):
            files += sorted(glob(f"{folder}/**/*.*", recursive=True))
        return [file for file in files if os.path.isfile(file)]


def build_go_library() -> str:
    """Runs `go build`; returns the path of the library, or raises Unbuildable.

    Go detects changed sources, flags and toolchains, and does not touch a file that
    is up to date.  The file is in build/; a lock serialises builds for several
    interpreters.
    """
    go = toolchain.go()
    release = target()
    folder = os.path.join("build", f"golib-{release.name}" if release else "golib")
    os.makedirs(folder, exist_ok=True)
    library = os.path.join(folder, LIBRARY)
    command = [go, "build", "-buildmode=c-shared", "-buildvcs=false", *go_flags()]
    with _locked(os.path.join(folder, "lock")):
        command += [f"-overlay={_write_overlay(go, folder)}", "-o", library, GO_PACKAGE]
        # Go does not track this input.
        if os.path.exists(library) and _newer(EXPORTS, library):
            os.unlink(library)
        print(shlex.join(command), flush=True)
        done = subprocess.run(
            command,
            env=go_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    sys.stdout.write(done.stdout)
    sys.stdout.flush()
    if done.returncode != 0:
        raise toolchain.Unbuildable(explain_go_failure(done.stdout))
    return library


def _write_overlay(go: str, folder: str) -> str:
    """Writes go build's overlay file, and changed copies of files of Go; returns its path."""
    answer = subprocess.run(
        [go, "env", "GOROOT"],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    sources = os.path.join(answer.stdout.strip(), "src")
    replaced = {
        os.path.join(sources, *name.split("/")): os.path.abspath(own)
        for name, own in GO_OVERLAY.items()
    }
    for name, changes in GO_CHANGES.items():
        source = os.path.join(sources, *name.split("/"))
        with open(source, encoding="utf-8") as file:
            text = file.read()
        for before, after in changes:
            if text.count(before) == 1:
                text = text.replace(before, after)
        # The underscore makes Go ignore the file as a part of this module.
        changed = os.path.join(folder, "_" + name.replace("/", "-"))
        replaced[source] = os.path.abspath(changed)
        with open(replaced[source], "w", encoding="utf-8") as file:
            file.write(text)
    path = os.path.join(folder, "overlay.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"Replace": replaced}, file)
    return path


def go_flags() -> list[str]:
    """Returns the flags of a release, or of a build for a debugger.

    Go's runtime and standard library stay optimised in both: without inlining, the locks
    and stacks of the runtime would differ from those of the process with the bug.
    """
    # An absolute path, because Go runs the linker in a temporary folder.
    wraps = ",".join(f"--wrap={function}" for function in WRAPPED)
    exports = f"-Wl,{wraps},--version-script={os.path.abspath(EXPORTS)}"
    link = f"""{GO_LINK_FLAGS} '-extldflags="{exports}"'"""
    if _debug():
        return [f"-gcflags={GO_MODULE}/...=-N -l", f"-ldflags={link}"]
    # The names of functions stay, for perf and `py-spy --native`: 160 KB.
    link = f"-w {link}"
    if target() is not None:
        # The build id depends on the compiler's path too, which differs between machines.
        link = f"-buildid= {link}"
    return ["-trimpath", f"-ldflags={link}"]


def go_environment() -> dict[str, str]:
    """Returns the environment of `go build`: no other toolchain, and the same C compiler.

    It has the checksum of abi.h, so that a change of that file leads to a new build.
    """
    environment = dict(os.environ)
    environment["GOTOOLCHAIN"] = "local"
    environment["CGO_ENABLED"] = "1"
    environment["CC"] = compiler()
    release = target()
    if release is not None:
        environment["GOOS"] = "linux"
        environment["GOARCH"] = release.goarch
        environment["CGO_CFLAGS"] = "-O2 -g0 -fno-sanitize=undefined"
        # Go's default has -g, with which zig does not strip symbols.
        environment["CGO_LDFLAGS"] = "-O2 -s"
        # Settings of the user for other builds: flags, newer processors.
        for name in ("GOFLAGS", "GOAMD64", "GOARM64", "GOEXPERIMENT"):
            environment.pop(name, None)
    if _debug():
        environment.setdefault("CGO_CFLAGS", "-Og -g")
    # Go tracks the headers of a package's own folder only, and abi.h is in another.
    with open(ABI, "rb") as file:
        seen = f"-DGOLOOP_ABI_SEEN=0x{zlib.crc32(file.read()):x}"
    flags = environment.setdefault("CGO_CPPFLAGS", "")
    environment["CGO_CPPFLAGS"] = f"{flags} {seen}"
    if not environment.get("HOME") and not environment.get("GOCACHE"):
        # Build containers may have no home; Go refuses to work without a cache.
        environment["GOCACHE"] = os.path.abspath(os.path.join("build", "go-cache"))
        environment.setdefault("GOPATH", os.path.abspath(os.path.join("build", "go-path")))
    return environment


def compiler() -> str:
    """Returns the command line of the C compiler for the target machine."""
    release = target()
    return toolchain.c_compiler() if release is None else release.compiler()


def vendor_go_modules(folder: str) -> dict[str, str]:
    """Copies the Go modules into a folder; returns the paths on disk by name in the tree.

    An unpacked source distribution contains the modules already, so the result is empty there.
    Raises Unbuildable if the modules cannot be fetched.
    """
    if os.path.exists(os.path.join("vendor", "modules.txt")):
        return {}
    shutil.rmtree(folder, ignore_errors=True)
    command = [toolchain.go(), "mod", "vendor", "-o", folder]
    done = subprocess.run(
        command,
        env={**os.environ, "GOTOOLCHAIN": "local"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.stdout.write(done.stdout)
        sys.stdout.flush()
        raise toolchain.Unbuildable(explain_go_failure(done.stdout))
    files = [path for path in glob(f"{folder}/**/*", recursive=True) if os.path.isfile(path)]
    return {f"vendor/{os.path.relpath(path, folder)}".replace(os.sep, "/"): path for path in files}


def explain_go_failure(output: str) -> str:
    """Returns the sentence for a failed `go build`, according to its output."""
    if UNREACHABLE.search(output):
        proxy = os.environ.get("GOPROXY") or "Go's default proxy"
        return (
            f"the Go modules that go.mod names could not be fetched through {proxy} "
            f"(Go's own message is above); set GOPROXY to a proxy that this machine reaches."
        )
    return "the Go library did not build; Go's own message is above."


def _newer(path: str, than: str) -> bool:
    return os.path.exists(path) and os.path.getmtime(path) > os.path.getmtime(than)


@contextlib.contextmanager
def _locked(path: str) -> Iterator[None]:
    """Holds an exclusive lock of the file for the block; waits for other processes."""
    import fcntl  # here, because a pure wheel can be built on systems without fcntl

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---- wheels -------------------------------------------------------------------


class Build(build):
    """The command `build`, which also builds the Go library."""

    sub_commands = [*build.sub_commands, ("build_golib", None)]


class BuildWheel(bdist_wheel):
    """A wheel with the target's glibc in its name."""

    def get_tag(self) -> tuple[str, str, str]:
        """Returns the three parts of the wheel's tag."""
        implementation, abi, platform = super().get_tag()
        release = target()
        return implementation, abi, platform if release is None else release.platform


class BuildPure(build_py):
    """Adds the module that marks a wheel without compiled parts for goloop/__init__.py."""

    def run(self) -> None:
        """Copies the package's modules and writes the marker module.

        Raises Unbuildable for an editable install.
        """
        if self.editable_mode:
            raise toolchain.Unbuildable(toolchain.PURE_IS_NOT_EDITABLE)
        super().run()
        with open(self._marker(), "w", encoding="utf-8") as file:
            file.write('"""This is the wheel without goloop\'s own loop."""\n')

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Returns the files of the wheel."""
        return [*super().get_outputs(include_bytecode), self._marker()]

    def _marker(self) -> str:
        return os.path.join(self.build_lib, PACKAGE, "_pure.py")


def setup_arguments() -> dict[str, Any]:
    """Returns the arguments of setup() that pyproject.toml does not have."""
    with open("README.md", encoding="utf-8") as file:
        described = {
            "long_description": address.absolute(file.read()),
            "long_description_content_type": "text/markdown",
        }
    if toolchain.pure():
        return {"cmdclass": {"build_py": BuildPure}, **described}
    commands = {
        "bdist_wheel": BuildWheel,
        "build": Build,
        "build_ext": BuildExtension,
        "build_golib": BuildGoLibrary,
    }
    return {"cmdclass": commands, "ext_modules": [core_extension()], **described}
