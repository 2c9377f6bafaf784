"""The program `clients` of test_ready_wait.py."""

import select
import socket
import sys

poll, left = select.poll(), {}
for each in [socket.create_connection(("127.0.0.1", int(sys.argv[1]))) for _ in range(50)]:
    left[each.fileno()] = each, 10
    poll.register(each, select.POLLIN)
print(flush=True)
sys.stdin.readline()
for each, _ in left.values():
    each.sendall(b"x")
while left:
    for number, _ in poll.poll():
        each, more = left.pop(number)
        each.recv(1)
        if more > 1:
            left[number] = each, more - 1
            each.sendall(b"x")
        else:
            poll.unregister(each)
