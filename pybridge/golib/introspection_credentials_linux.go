package main

import "golang.org/x/sys/unix"

// isAllowedClient reports whether a client runs as the process's own user or as root. A process id of 0
// means another PID namespace: containers with a common network see each other's abstract names, and each
// has a root.
func isAllowedClient(fd int) bool {
	who, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && who.Pid != 0 && (who.Uid == 0 || int(who.Uid) == unix.Geteuid())
}
