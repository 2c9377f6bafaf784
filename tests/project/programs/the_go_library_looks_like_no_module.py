import importlib
import importlib.util
import pkgutil

import goloop

names = {each.name for each in pkgutil.walk_packages(goloop.__path__, "goloop.")}
assert {"goloop._internal.loop.loop", "goloop._core"} <= names, names
others = {"goloop.workers", "goloop.web_worker", "goloop.uvicorn_worker"}  # of gunicorn
if importlib.util.find_spec("tkinter") is None:  # Debian has it in a package of its own
    others.add("goloop.guest.tk")
for name in names - others - {"goloop.__main__"}:
    if "hook-" not in name:
        importlib.import_module(name)
assert goloop.diagnostics()["library"]["mode"] == "unopened"
