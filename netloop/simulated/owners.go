//go:build linux

package simulated

import "syscall"

// programBits is the position of the program's number in an owner's number.
const programBits = 24

// owner is the host and the program that a socket or pipe end belongs to. Program 0 is all code of the host
// that does not run in a child process. An owner's number has the host in the low bits and the program from
// programBits on.
type owner struct {
	home    *host
	program int
}

// owned returns the owner itself, for ownerOfNode: every node that embeds an owner has this method.
func (o *owner) owned() *owner { return o }

// ownerOf decodes an owner's number. ESRCH if it has no host.
func (k *Kernel) ownerOf(number int) (owner, syscall.Errno) {
	home := number & (1<<programBits - 1)
	if number < 0 || !k.hasHosts(home) {
		return owner{}, syscall.ESRCH
	}
	return owner{k.hosts[home], number >> programBits}, 0
}

// ownerOfNode returns the owner of a node; nil: its type has no owner.
func ownerOfNode(n node) *owner {
	if o, ok := n.(interface{ owned() *owner }); ok {
		return o.owned()
	}
	return nil
}

// hostOfNode returns the host of a node, or nil.
func hostOfNode(n node) *host {
	if o := ownerOfNode(n); o != nil {
		return o.home
	}
	return nil
}

// EndProgram closes all sockets and pipes of the program in an owner's number, as its exit does. Their
// numbers stay in use until their objects close them. ESRCH if the number has no program.
func (k *Kernel) EndProgram(number int) syscall.Errno {
	k.mu.Lock()
	defer k.mu.Unlock()
	o, errno := k.ownerOf(number)
	if errno == 0 && o.program == 0 {
		errno = syscall.ESRCH
	}
	if errno == 0 {
		k.trace.entry(k.now, "end of program "+padded(uint64(o.program), 10, 1, ' '))
		k.closeAll(true, func(of owner) bool { return of == o })
	}
	return errno
}
