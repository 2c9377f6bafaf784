import importlib
import pkgutil

import goloop

names = {each.name for each in pkgutil.walk_packages(goloop.__path__, "goloop.")}
assert {"goloop._internal.loop.loop", "goloop._core"} <= names, names
others = {"goloop.workers", "goloop.web_worker", "goloop.uvicorn_worker"}  # of gunicorn
for name in names - others - {"goloop.__main__"}:
    if "hook-" not in name:
        importlib.import_module(name)
assert goloop.diagnostics()["library"]["mode"] == "unopened"
