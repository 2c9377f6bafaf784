"""goloop without its extension: `python without_the_extension.py otel|prometheus`."""

import asyncio
import sys
import types
import warnings

warnings.simplefilter("ignore")
sys.modules["goloop._pure"] = types.ModuleType("goloop._pure")
import goloop

assert not goloop.native

if sys.argv[1] == "otel":
    try:
        import goloop.otel
    except ImportError as error:
        print(error)
else:
    from prometheus_client import CollectorRegistry, generate_latest

    import goloop.prometheus

    registry = CollectorRegistry()
    goloop.prometheus.register(registry)
    goloop.run(asyncio.sleep(0))
    print(generate_latest(registry).decode())
