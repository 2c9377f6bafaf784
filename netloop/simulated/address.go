//go:build linux

package simulated

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// address is a struct sockaddr. The zero value is the address of an unnamed Unix socket.
type address struct {
	family int
	ip     [16]byte // IPv4 uses the first four bytes
	port   uint16
	name   string        // a path, or an abstract name after a zero byte
	bad    syscall.Errno // an error in the address that calls report late
}

// maxPath is the size of sockaddr_un.sun_path in bytes.
const maxPath = 108

// parseAddress parses a socket address that a program passes to a socket of this family. AF_UNSPEC is
// accepted for every family; the other fields are 0 then. The errno is the one of bind(2) and connect(2) for
// a malformed address: EINVAL for a wrong length, and for any family but AF_UNIX on a Unix socket;
// EAFNOSUPPORT for another family on an internet socket.
func parseAddress(raw []byte, family int) (address, syscall.Errno) {
	var a address
	if len(raw) < 2 {
		return a, syscall.EINVAL
	}
	a.family = int(binary.NativeEndian.Uint16(raw))
	switch family {
	case unix.AF_INET, unix.AF_INET6:
		if a.family == unix.AF_UNSPEC {
			return a, 0
		}
		at, size, least := 4, 4, 16
		if family == unix.AF_INET6 {
			at, size, least = 8, 16, 24
		}
		if len(raw) < least {
			return a, syscall.EINVAL
		}
		if a.family != family {
			return a, syscall.EAFNOSUPPORT
		}
		a.port = binary.BigEndian.Uint16(raw[2:])
		copy(a.ip[:size], raw[at:])
	default:
		if a.family == unix.AF_UNSPEC {
			return a, 0
		}
		if len(raw) > 2+maxPath || a.family != unix.AF_UNIX {
			return a, syscall.EINVAL
		}
		if len(raw) == 2 {
			return a, 0
		}
		if a.name = string(raw[2:]); raw[2] != 0 {
			path, _, _ := bytes.Cut(raw[2:], []byte{0})
			a.name = string(path)
		}
	}
	return a, 0
}

// encode returns the address in the kernel's format, as a program receives it.
func (a *address) encode() []byte {
	raw := binary.NativeEndian.AppendUint16(nil, uint16(a.family))
	switch a.family {
	case unix.AF_INET:
		raw = binary.BigEndian.AppendUint16(raw, a.port)
		return append(append(raw, a.ip[:4]...), make([]byte, 8)...)
	case unix.AF_INET6:
		raw = append(binary.BigEndian.AppendUint16(raw, a.port), 0, 0, 0, 0)
		return append(append(raw, a.ip[:]...), 0, 0, 0, 0)
	}
	if raw = append(raw, a.name...); a.name != "" && a.name[0] != 0 {
		raw = append(raw, 0)
	}
	return raw
}

// String returns the address as it appears in traces: "127.0.0.1:80", an IPv6 address with all 16 bytes in
// hexadecimal, or the quoted name of a Unix socket.
func (a *address) String() string {
	switch a.family {
	case unix.AF_INET:
		var text []byte
		for i, before := range []string{"", ".", ".", "."} {
			text = strconv.AppendUint(append(text, before...), uint64(a.ip[i]), 10)
		}
		return string(text) + ":" + strconv.Itoa(int(a.port))
	case unix.AF_INET6:
		text := []byte("[")
		for _, b := range a.ip {
			text = append(text, padded(uint64(b), 16, 2, '0')...)
		}
		return string(text) + "]:" + strconv.Itoa(int(a.port))
	}
	return strconv.Quote(a.name)
}

// padded formats a number in a base, filled on the left with `by` to at least `places` characters.
func padded(n uint64, base, places int, by byte) string {
	text := strconv.FormatUint(n, base)
	for len(text) < places {
		text = string(by) + text
	}
	return text
}

// isAny reports whether this is the wildcard address.
func (a *address) isAny() bool { return a.ip == [16]byte{} }

// isLoopback reports whether this is a loopback address.
func (a *address) isLoopback() bool {
	if a.family == unix.AF_INET6 {
		return a.ip == [16]byte{15: 1}
	}
	return a.ip[0] == 127
}

// replaceWildcard replaces the wildcard address by the loopback address of its family. Other addresses
// stay.
func (a *address) replaceWildcard() {
	switch {
	case !a.isAny():
	case a.family == unix.AF_INET6:
		a.ip[15] = 1
	default:
		a.ip = [16]byte{127, 0, 0, 1}
	}
}
