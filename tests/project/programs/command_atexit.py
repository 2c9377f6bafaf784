import atexit

atexit.register(print, "end")
import sys

print(len(sys.argv))
