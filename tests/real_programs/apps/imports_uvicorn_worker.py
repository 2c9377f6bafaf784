"""The package that goloop's worker for gunicorn comes from; `uvicorn.workers` if that is wanted."""

import sys

if sys.argv[1] == "uvicorn.workers":
    sys.modules["uvicorn_worker"] = None  # not installed

from goloop.uvicorn_worker import GoloopUvicornWorker

print(GoloopUvicornWorker.__base__.__module__.split("._")[0], GoloopUvicornWorker.CONFIG_KWARGS)
