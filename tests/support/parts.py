"""Which tests run in part: in a round over several versions of Python each has another part."""

from __future__ import annotations

import os
import sysconfig

# A sanitized extension takes its time.
PART = "GOLOOP_SANITIZE" in os.environ or "GOLOOP_TEST_PART" in os.environ
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
