"""A package that lets loops run within loops is refused by goloop's: PACKAGE WAY.

Afterwards asyncio is as it was.  WAY is how the package gets a loop of goloop's: `running`,
`policy` or `given`; with `patched` it patches one of asyncio's loops, beside which goloop's work.
"""

import asyncio
import importlib
import sys
import warnings

warnings.simplefilter("ignore", DeprecationWarning)  # policies, from 3.14 on

from asyncio_works import asyncio_works

import goloop

nest = importlib.import_module(sys.argv[1])


def names():
    """Return all that such a package replaces."""
    return [
        *(asyncio.run, asyncio.get_event_loop, asyncio.events.get_event_loop),
        *(asyncio.Task, asyncio.tasks.Task, asyncio.tasks._CTask),
        *(asyncio.Future, asyncio.futures.Future, asyncio.futures._CFuture),
        getattr(asyncio.events, "_get_event_loop", None),
        *(hasattr(asyncio, "_nest_patched"), hasattr(asyncio, "_nest_asyncio2")),
    ]


def is_refused(*loop):
    try:
        nest.apply(*loop)
    except ValueError as error:
        assert "Can't patch loop of type <class 'goloop.Loop'>" in str(error), error
        assert "goloop.run" in str(error), error
        return True
    return False


def running():
    async def main():
        assert is_refused()
        assert names() == before
        return await asyncio_works()

    print("same run:", goloop.run(main()))


def policy():
    goloop.install()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    assert is_refused()
    asyncio.set_event_loop(None)
    loop.close()
    assert names() == before
    assert "get_event_loop" not in vars(goloop.EventLoopPolicy)


def given():
    import tornado.concurrent

    loop = goloop.new_event_loop()
    assert is_refused(loop)
    assert names() == before
    assert tornado.concurrent.Future is asyncio.Future
    print("same loop:", loop.run_until_complete(asyncio_works()))
    loop.close()


def patched():
    async def answer():
        return 42

    async def nested():
        return asyncio.run(answer())

    async def not_nested():
        coroutine = answer()
        try:
            asyncio.run(coroutine)
        except (RuntimeError, ValueError) as error:
            return str(error)
        finally:
            coroutine.close()

    theirs = asyncio.SelectorEventLoop()
    asyncio.set_event_loop(theirs)
    nest.apply(theirs)
    print("asyncio, nested:", theirs.run_until_complete(nested()))
    print("goloop.run:", goloop.run(asyncio_works()))
    ours = goloop.new_event_loop()
    assert is_refused(ours)
    print("goloop's loop:", ours.run_until_complete(asyncio_works()))
    ours.close()
    print("goloop, nested:", goloop.run(not_nested()))
    asyncio.set_event_loop(theirs)
    print("asyncio, nested again:", theirs.run_until_complete(nested()))
    theirs.close()


before = names()
globals()[sys.argv[2]]()
if sys.argv[2] != "patched":
    # Both loops work, by all functions that run one.
    print("goloop.run:", goloop.run(asyncio_works()))
    print("asyncio.run:", asyncio.run(asyncio_works()))
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        print("asyncio's loop:", runner.run(asyncio_works()))
