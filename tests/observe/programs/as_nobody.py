import encodings.idna  # noqa: F401
import http.client  # noqa: F401
import os

import goloop.operations.commands.export  # noqa: F401

os.setgroups([])
os.setresuid(65534, 65534, 65534)
