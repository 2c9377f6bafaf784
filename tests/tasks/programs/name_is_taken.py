"""The program `name_is_taken` of test_introspect.py."""

import os
import socket
import warnings

squatter = socket.socket(socket.AF_UNIX)
squatter.bind(f"\0goloop-introspect-{os.stat('/proc/self/ns/pid').st_ino}-{os.getpid()}")
squatter.listen()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import goloop
assert len(caught) == 1 and caught[0].category is RuntimeWarning, caught
assert "introspection socket" in str(caught[0].message)
try:
    goloop.introspect()
except OSError:
    print("refused", flush=True)
squatter.close()
goloop.introspect()
goloop.introspect()
