"""The scenarios of test_imports_after_the_first_loop.py, which import goloop themselves.

`python late_imports_scenarios.py NAME ...` runs one.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings

warnings.simplefilter("ignore")  # of os.fork() beside threads


def fork_inside_an_import(file: str) -> None:
    import threading

    inside, forked = threading.Event(), threading.Event()

    def hook(event, args):
        if event == "exec" and args[0].co_filename.endswith(file) and not inside.is_set():
            inside.set()
            forked.wait(0.2)  # which os.fork() outlasts, because it waits for the import

    def run():
        import goloop

        return goloop.run(asyncio.sleep(0, "ran"))

    sys.addaudithook(hook)
    importing = threading.Thread(target=run)
    importing.start()
    inside.wait()
    child = os.fork()
    forked.set()
    if child == 0:
        os._exit(run() != "ran")
    assert os.waitpid(child, 0)[1] == 0
    importing.join()
    print(run())


def interrupted_imports(error: str, by: str, points: str) -> None:
    """Prints the points of the import at which an exception has made a later import fail."""
    import codecs  # noqa: F401
    import encodings.idna  # noqa: F401
    import json  # noqa: F401

    raised = {"KeyboardInterrupt": KeyboardInterrupt, "MemoryError": MemoryError}[error]
    events = 0
    at = -1

    def hook(event, args):
        nonlocal events, at
        events += 1
        if events == at:
            at = -1
            raise raised

    def tracer(frame, event, arg):
        # CPython ignores an exception in this callback of importlib's locks, and the lock stays.
        if frame.f_code.co_name != "remove":
            hook(event, arg)
        return tracer

    def run():
        import goloop

        assert goloop.watchdog.subscribe
        assert goloop.run(asyncio.sleep(0, 1)) == 1
        assert goloop.diagnostics()["tasks"] == known["tasks"]
        assert goloop.diagnostics()["tls"] == known["tls"]

    def watch():
        if by == "audit":
            sys.addaudithook(hook)
        else:
            sys.settrace(tracer)

    def in_child(function):
        pid = os.fork()
        if pid == 0:
            try:
                function()
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        return os.waitpid(pid, 0)[1]

    def count():
        watch()
        import goloop  # noqa: F401

        sys.settrace(None)
        os.write(1, f"{events}\n".encode())

    def interrupted():
        watch()
        try:
            import goloop  # noqa: F401
        except BaseException as exc:
            assert isinstance(exc, raised) or at == -1, exc
        sys.settrace(None)
        run()

    def facts():
        import goloop

        os.write(1, repr(goloop.diagnostics()).encode())

    read, write = os.pipe()
    keep = os.dup(1)
    os.dup2(write, 1)
    in_child(facts)
    known = eval(os.read(read, 10000))
    in_child(count)
    total = int(os.read(read, 100))
    os.dup2(keep, 1)
    failed = []
    step = max(1, total // int(points))
    for point in range(1, total, step):
        at = point
        if in_child(interrupted):
            failed.append(point)
    print(total > int(points), failed)


# ---- sys.modules ---------------------------------------------------------------------------------


def contexts(certificate, key):
    """The TLS contexts of import_walk."""
    import logging

    import import_walk

    logging.disable(logging.CRITICAL)
    return import_walk.contexts(certificate, key)


def walk(loop, both):
    import import_walk

    loop.run_until_complete(import_walk.walk(loop, both))


def drop_goloop():
    for name in list(sys.modules):
        if name.partition(".")[0] == "goloop":
            del sys.modules[name]


def first_imported_within_a_patch_of_sys_modules(certificate: str, key: str) -> None:
    from unittest import mock

    import import_walk

    both = contexts(certificate, key)
    with mock.patch.dict(sys.modules):
        import goloop

        loop = goloop.new_event_loop()
    assert "goloop" not in sys.modules
    walk(loop, both)
    import goloop

    import_walk.run(loop, both)
    import_walk.run(goloop.new_event_loop(), both)
    print("fine")


def dropped_and_imported_again(certificate: str, key: str) -> None:
    import import_walk

    both = contexts(certificate, key)
    import goloop

    first, loop = goloop, goloop.new_event_loop()
    seen = []
    first.watchdog.subscribe(seen.append)
    for _ in range(3):
        drop_goloop()
        import goloop

        assert goloop is first
        assert sys.modules["goloop._internal.tls.protocol"]
        assert isinstance(loop, goloop.Loop)
    import_walk.run(loop, both)
    assert seen
    import_walk.run(goloop.new_event_loop(), both)
    print("fine")


def reloaded(certificate: str, key: str) -> None:
    import import_walk

    both = contexts(certificate, key)
    import importlib

    import goloop

    loop = goloop.new_event_loop()
    assert importlib.reload(goloop) is goloop
    assert isinstance(loop, goloop.Loop)
    import_walk.run(loop, both)
    import_walk.run(goloop.new_event_loop(), both)
    print("fine")


def dropped_with_a_loop_that_is_used_on(certificate: str, key: str) -> None:
    both = contexts(certificate, key)
    import goloop

    loop = goloop.new_event_loop()
    drop_goloop()
    walk(loop, both)
    loop.close()
    assert not [name for name in sys.modules if name.startswith("goloop")]
    print("fine")


def dropped_within_a_patch_with_late_modules(certificate: str, key: str) -> None:
    from unittest import mock

    contexts(certificate, key)
    import goloop

    first = goloop.run_threads, goloop.SharedListener
    late = sys.modules["goloop._internal.process.threads"]
    with mock.patch.dict(sys.modules):
        drop_goloop()
        import goloop

        assert sys.modules["goloop._internal.process.threads"] is late
        assert (goloop.run_threads, goloop.SharedListener) == first
    print("fine")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
