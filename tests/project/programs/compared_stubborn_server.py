import signal
import subprocess

signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "1000"], process_group=0)
with open("pids", "a") as file:
    file.write(f"{child.pid}\n")
