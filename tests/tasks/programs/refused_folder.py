import goloop

try:
    goloop.introspect()
except PermissionError:
    print("ready", flush=True)
