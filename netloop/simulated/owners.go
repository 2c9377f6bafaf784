//go:build linux

package simulated

import "syscall"

// programBits is where the program stands in a number that names an owner.
const programBits = 24

// owner is whose a socket or an end of a pipe is: a host's, and there a program's. Program 0 is all that
// runs on the host without being a child of another one. A number names an owner: that of the host, and
// from programBits on that of the program.
type owner struct {
	home    *host
	program int
}

func (o *owner) owned() *owner { return o }

// ownerOf is whom a number names.
func (k *Kernel) ownerOf(number int) (owner, syscall.Errno) {
	home := number & (1<<programBits - 1)
	if number < 0 || !k.hasHosts(home) {
		return owner{}, syscall.ESRCH
	}
	return owner{k.hosts[home], number >> programBits}, 0
}

// ownerOfNode is whose a node is; nil: it is of a kind that has no owner.
func ownerOfNode(n node) *owner {
	if o, ok := n.(interface{ owned() *owner }); ok {
		return o.owned()
	}
	return nil
}

// homeOf is the host that has a node, or nil.
func homeOf(n node) *host {
	if o := ownerOfNode(n); o != nil {
		return o.home
	}
	return nil
}

// EndProgram closes what a program has, as its end does.
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
