package main

import "golang.org/x/sys/unix"

// mayAsk: the process's own user and root. No process is 0 but one of another PID namespace: containers
// with one network see each other's abstract names, and each has a root.
func mayAsk(fd int) bool {
	who, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && who.Pid != 0 && (who.Uid == 0 || int(who.Uid) == unix.Geteuid())
}
