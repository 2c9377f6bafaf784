"""uvicorn after goloop.install(): PORT WORKERS."""

import sys
import warnings

warnings.simplefilter("ignore", DeprecationWarning)

import uvicorn

import goloop

if __name__ == "__main__":
    goloop.install()
    uvicorn.run("plain_app:app", port=int(sys.argv[1]), workers=int(sys.argv[2]))
