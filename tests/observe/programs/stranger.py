"""The program `stranger` of test_asking_socket.py."""

import os
import socket
import sys

os.setgroups([])
os.setresuid(65534, 65534, 65534)
for _ in range(200):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(sys.argv[1].replace("@", "\0"))
        try:
            assert client.recv(100) == b""
        except ConnectionResetError:
            pass
print("refused")
