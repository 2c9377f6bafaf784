"""The program `missing_package` of test_prometheus.py."""

import importlib
import sys

module, package, extra = sys.argv[1:]


class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refuses())
import goloop  # needs neither

goloop.run(__import__("asyncio").sleep(0))
goloop.metrics()
try:
    importlib.import_module(module)
except ImportError as error:
    assert f"pip install {extra}" in str(error), error
else:
    raise AssertionError("it was imported")
