"""Which tests run in part: in a round over several versions of Python each has another part."""

from __future__ import annotations

import os
import sysconfig

# A sanitized extension takes its time.
PART = "GOLOOP_SANITIZE" in os.environ or os.environ.get("GOLOOP_TEST_PART", "0") == "1"
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
