import resource
import sys

from goloop.operations.commands import doctor

with open("/proc/self/statm") as file:
    room = int(file.read().split()[0]) * resource.getpagesize() + (1 << 29)
resource.setrlimit(resource.RLIMIT_AS, (room, room))
sys.exit(doctor.main([]))
