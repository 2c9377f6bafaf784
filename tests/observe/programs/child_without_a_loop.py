import os
import sys

import goloop

goloop.introspect()
os.write(1, b"0\n")
sys.stdin.read()
