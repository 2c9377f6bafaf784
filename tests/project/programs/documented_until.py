import os
import signal
import subprocess
import sys

text, *command = sys.argv[1:]
workers = int(command[command.index("--workers") + 1]) if "--workers" in command else 1
with subprocess.Popen(
    command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0
) as process:
    said, ended = "", False
    for line in process.stdout:
        said += line
        if said.count(text) == workers and not ended:
            os.killpg(process.pid, signal.SIGINT)
            ended = True
print(said)
sys.exit(not ended or "Traceback" in said)
