"""Runs of a test's seeds in new processes.

A process reads a request as JSON from stdin and writes the answer as JSON to stdout: the first seed
that failed, the type of the exception, and the trace; or `error` with the reason for which the
process can't run the test.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

_PROGRAM = (
    "import json, sys; request = json.load(sys.stdin); sys.path[:] = request['path']; "
    "from goloop.testing.simulation import replay; replay.answer(request)"
)


def request(
    test: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[dict[str, Any] | None, str]:
    """Return the request that describes a call of a test, and ""; or None and the reason.

    A new process can call a test only if it can import the test and unpickle its arguments.
    """
    module = sys.modules.get(test.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None:
        return None, f"the module {test.__module__!r} has no file"
    if _find_by_name(module, test.__qualname__) is not test:
        return None, f"{test.__qualname__} can't be imported from {test.__module__!r}"
    try:
        arguments = base64.b64encode(pickle.dumps((args, kwargs))).decode()
    except Exception as exc:
        return None, f"its arguments can't be pickled ({type(exc).__name__}: {exc})"
    return {
        # Imports ignore entries of other types, and JSON can't represent them.
        "path": [entry for entry in sys.path if isinstance(entry, str)],
        "module": test.__module__,
        "file": os.path.abspath(file),
        "name": test.__qualname__,
        "arguments": arguments,
    }, ""


def run_in_processes(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Run each request in its own process, all at the same time; return the answers.

    The processes have different hashes of strings.  An answer is {"error": ...} if its process
    failed.
    """
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number, each in enumerate(requests, 1):
            process = subprocess.Popen(
                [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", _PROGRAM],  # type: ignore[attr-defined]
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONHASHSEED": str(number)},
            )
            processes.append(process)
            assert process.stdin is not None
            with process.stdin:
                process.stdin.write(json.dumps(each).encode())
        return [_answer_of(process) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _answer_of(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Wait until a process exits, and return its answer; {"error": ...} if it has failed."""
    assert process.stdout is not None
    output = process.stdout.read()
    if process.wait() or not output:
        return {"error": f"the new process ended with {process.returncode}"}
    answer: dict[str, Any] = json.loads(output)
    return answer


# ---- in the new process ----------------------------------------------------------------------


def answer(request: dict[str, Any]) -> None:
    """Run a request and write the answer to stdout; output of the test goes to stderr."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        answered = _answer(request)
    except Exception as exc:
        answered = {"error": f"the new process can't run it ({type(exc).__name__}: {exc})"}
    with output:
        json.dump(answered, output)


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run the seeds of a request until one fails; return the answer.

    With `record` in the request only the first seed is run, and the answer describes its run even
    if it succeeds.  If no seed fails, the answer's `seed` is None.
    """
    import dataclasses

    test = _find_by_name(_load_module(request["module"], request["file"]), request["name"])
    if test is None:
        return {
            "error": f"the new process does not find {request['name']} in {request['module']!r}"
        }
    args, kwargs = pickle.loads(base64.b64decode(request["arguments"]))
    plan, program = test.goloop_plan
    plan, main = dataclasses.replace(plan, policy=request["policy"]), program(args, kwargs)
    record = request.get("record", False)
    for seed in request["seeds"]:
        result = plan.run(main, seed, record)
        if result.exc is not None or record:
            kind = None if result.exc is None else type(result.exc).__name__
            return {"seed": seed, "kind": kind, "trace": result.trace, "events": result.events}
    return {"seed": None}


def _load_module(name: str, file: str) -> Any:
    """Import a test's module; a `__main__` module is loaded as multiprocessing does.

    ImportError if the name is another file's module here.
    """
    if name != "__main__":
        module = importlib.import_module(name)
        if os.path.abspath(module.__file__ or "") != file:
            raise ImportError(f"{name!r} is another module in the new process")
        return module
    spec = importlib.util.spec_from_file_location("__mp_main__", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules["__mp_main__"] = sys.modules["__main__"] = module
    spec.loader.exec_module(module)
    return module


def _find_by_name(module: Any, name: str) -> Any:
    """Return the object with a qualified name in a module, or None."""
    for part in name.split("."):
        module = getattr(module, part, None)
    return module
