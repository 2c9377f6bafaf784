"""Loads the Go library, finds OpenSSL, and registers the hooks for forks and for the exit.

The package calls prepare() when it is imported. That loads the library but runs no Go code. The
steps of a fork are described in docs/internals/fork.md.
"""

from __future__ import annotations

import _ssl
import atexit
import os
import sys
import types

from .. import helper_threads as helper_threads  # registers its hook for the exit first

FOLDER = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))


def _advice() -> str:
    """Return where the C extension is missing, and what to do, without the final full stop."""
    root = os.path.dirname(FOLDER)
    missing = "goloop's C extension is not built for this Python in"
    if not os.path.exists(os.path.join(root, "build_backend", "goloop_build")):
        return f"{missing} {FOLDER}. Install goloop with this Python's pip"
    if installed := _installed_elsewhere(root):
        ways = "Run the program by `python -P`, or from a folder outside of the source tree"
        if not os.path.exists(os.path.join(installed, "goloop", "_pure.py")):
            ways += ", or run `pip install -e .` in the source tree"
        return (
            f"{missing} goloop's source tree {root}, which Python found before the goloop that is "
            f"installed in {installed}. {ways}"
        )
    return f"{missing} its source tree {root}. Run `pip install -e .` there"


def _installed_elsewhere(root: str) -> str | None:
    """Return the folder of sys.path with a goloop for this Python, other than `root`, or None."""
    from importlib.machinery import PathFinder

    for folder in sys.path:
        if os.path.realpath(folder) == os.path.realpath(root):
            continue
        package = PathFinder.find_spec("goloop", [folder])
        places = None if package is None else package.submodule_search_locations
        names = ("goloop._core", "goloop._pure") if places else ()
        if any(PathFinder.find_spec(name, places) for name in names):
            return folder
    return None


try:
    from ... import _core
except ImportError as error:
    import importlib.util

    if importlib.util.find_spec("goloop._core") is not None:
        raise
    raise ImportError(_advice()) from error

# The reason why TLS uses SSLObject's methods, or None if OpenSSL is called directly; see prepare().
openssl_reason: str | None = None

LIBRARY = os.path.join(FOLDER, "libgoloop.so.1")


def restore_modules() -> None:
    """Put goloop's modules into sys.modules again if this process has imported goloop before.

    A test that patches sys.modules, or a reloader, drops a package and imports it again. The native
    half exists once in a process, and calls the functions and classes of the modules that it was
    first imported with. So the package is not executed a second time: the new import gets the
    same modules. After an import that was interrupted, only makes the loaded modules attributes of
    their packages.
    """
    package = getattr(_core, "_package", None)
    if package is None:
        for name, module in list(sys.modules.items()):
            above, _, last = name.rpartition(".")
            parent = sys.modules.get(above)
            if name.startswith("goloop.") and parent and not hasattr(parent, last):
                setattr(parent, last, module)
        return
    found = [package]
    for module in found:
        sys.modules[module.__name__] = module
        found += (
            each
            for each in vars(module).values()
            if type(each) is types.ModuleType
            and each.__name__.rpartition(".")[0] == module.__name__
        )


def record_package(package: types.ModuleType) -> None:
    """Keep the package for restore_modules(), when its import has succeeded."""
    vars(_core)["_package"] = package


def _flush_all_loops() -> None:
    """Send the queued writes of all loops' transports, before a fork and before the exit.

    asyncio's transports send within write(). Here small writes wait for the next turn, so they
    are sent before an event that may prevent that turn, or let other code use the connection
    first: a fork by any thread, and the exit of the interpreter. The other ways to end a process
    (os._exit, execv, a fatal signal) cannot be handled; docs/compatibility.md says so.
    """
    for loop in _core._open_loops():
        for transport in loop._all_transports():
            flush = getattr(transport, "_flush", None)
            if flush is not None:
                flush()


def prepare() -> None:
    """Set the library's path, find OpenSSL, and register the hooks for forks and for the exit.

    Call it once. TLS does not call OpenSSL directly if GOLOOP_TLS is "stdlib".
    """
    global openssl_reason
    _core.set_library_path(LIBRARY)
    if os.environ.get("GOLOOP_TLS") == "stdlib":
        openssl_reason = "GOLOOP_TLS=stdlib requests the methods of ssl.SSLObject"
    else:
        openssl_reason = _core._open_openssl(getattr(_ssl, "__file__", None))
    os.register_at_fork(before=_flush_all_loops)
    if hasattr(_core, "_in_child"):  # on free-threaded Python only
        os.register_at_fork(after_in_child=_core._in_child)
    # At exit the last writes of loops in daemon threads are sent, then foreign threads are refused.
    atexit.register(_core._refuse_foreign_threads)
    atexit.register(_flush_all_loops)
