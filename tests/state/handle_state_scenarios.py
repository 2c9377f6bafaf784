"""The scenarios of test_handle_state.py: `python handle_state_scenarios.py NAME` runs one."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import sys
import warnings


def matrix() -> None:
    """Prints the outcome of each change of an attribute, as JSON.

    Every attribute is deleted or gets each of these values, directly and by asyncio's slot
    descriptor; then the handle is used in each way.
    """
    if sys.argv[2] == "goloop":
        import goloop

        factory = goloop.new_event_loop
    else:
        factory = asyncio.SelectorEventLoop
    warnings.simplefilter("ignore")

    class Runs:
        def run(self, callback, *args):
            return callback(*args)

    other = factory()
    VALUES = {
        "delete": None,
        "None": None,
        "True": True,
        "zero": 0,
        "bytes": b"bytes",
        "list": [1, 2],
        "tuple": (1,),
        "callable": lambda *args: ran.append(("other", args)),
        "runs": Runs(),
        "context": contextvars.copy_context(),
        "loop": other,
    }
    NAMES = [
        "_callback",
        "_args",
        "_context",
        "_loop",
        "_cancelled",
        "_repr",
        "_source_traceback",
        "_when",
        "_scheduled",
    ]
    ran = []

    def write(handle, way, name, value):
        if way == "attribute":
            delattr(handle, name) if value == "delete" else setattr(handle, name, VALUES[value])
            return
        for cls in (asyncio.TimerHandle, asyncio.Handle):
            if isinstance(handle, cls) and name in vars(cls):
                slot = vars(cls)[name]
                slot.__delete__(handle) if value == "delete" else slot.__set__(
                    handle, VALUES[value]
                )

    def use(loop, handle, how):
        """The representation's type for `repr`, and None for others."""
        if how == "cancel":
            handle.cancel()
        elif how == "repr":
            return repr(type(repr(handle)))
        elif how == "_run":
            handle._run()
        elif how == "unbound":
            asyncio.Handle._run(handle)
        elif how == "unbound cancel":
            asyncio.Handle.cancel(handle)
        return None

    def outcome(kind, arguments, way, name, value, how, debug):
        loop = factory()
        loop.set_debug(debug)
        reported = []
        loop.set_exception_handler(
            lambda loop, c: reported.append([c["message"][:21], type(c["exception"]).__name__])
        )
        other.set_exception_handler(lambda loop, c: reported.append("on the other loop"))
        ran.clear()
        if kind == "call_later":
            handle = loop.call_later(0, lambda *args: ran.append(args), *arguments)
        else:
            handle = getattr(loop, kind)(lambda *args: ran.append(args), *arguments)
        told = []
        for step in (
            lambda: write(handle, way, name, value),
            lambda: use(loop, handle, how),
            lambda: (loop.call_later(0.0005, loop.stop), loop.run_forever()),
        ):
            try:
                told.append(step() if step.__code__.co_names[0] == "use" else step() and None)
            except Exception as exc:
                told.append(type(exc).__name__)
        gc.collect(0) if debug else None
        handle = None
        loop.close()
        return repr((told, ran, reported))

    found = {}
    for kind in ("call_soon", "call_later", "call_soon_threadsafe"):
        for arguments in ((), (1, 2, 3)) if kind == "call_soon" else ((1, 2, 3),):
            for way in ("attribute", "slot"):
                for name in NAMES[: None if kind == "call_later" else 7]:
                    for value in VALUES:
                        for how in ("run", "cancel", "repr", "_run", "unbound", "unbound cancel"):
                            case = (kind, arguments, way, name, value, how)
                            found[repr(case)] = outcome(*case, debug=how == "cancel")
    other.close()
    print(json.dumps(found))


def chains() -> None:
    warnings.simplefilter("ignore")
    import goloop

    gc.disable()
    loop = goloop.new_event_loop()
    what, last = sys.argv[2], None

    async def nothing(keep):
        pass

    def done(result):
        future = goloop.Future(loop=loop)
        future.set_result(result)
        return future

    for _ in range(200_000):
        if what == "handle":
            last = loop.call_soon(len, last)
        elif what == "tuple":
            last = loop.call_soon(len, last, 1, 2, 3)
        elif what == "timer":
            last = loop.call_later(1000, len, last)
        elif what == "threadsafe":
            last = loop.call_soon_threadsafe(len, last)
        elif what == "future":
            last = done(last)
        elif what == "mixed":
            last = loop.call_soon(len, done([last]))
        elif what == "exception":
            last = loop.call_soon(len, ValueError(last))
    loop.close()
    last = None
    gc.collect()
    # Memory that was freed is used again.
    loop = goloop.new_event_loop()
    seen = []
    for i in range(10_000):
        loop.call_soon(seen.append, i)
        loop.call_later(0, seen.append, i)
    loop.call_later(0.001, loop.stop)
    loop.run_forever()
    assert sorted(seen) == [i // 2 for i in range(20_000)], len(seen)
    loop.close()
    print("alive")


if __name__ == "__main__":
    globals()[sys.argv[1]]()
