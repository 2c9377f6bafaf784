import os
import subprocess
import sys
import time

try:
    os.mkdir("first")
except FileExistsError:
    LISTENS = True
else:
    thief = (
        "import os, socket, time\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        "server = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))\n"
        "open('new', 'w').write(str(os.getpid()))\n"
        "os.rename('new', 'thief')\n"
        "while True: server.accept()\n"
    )
    subprocess.run([sys.executable, "-c", thief], stdout=2, check=True)
    while not os.path.exists("thief"):
        time.sleep(0.01)
    LISTENS = False
