//go:build !linux

package pycode

// ReadMemory is not implemented: other systems have no call that reads memory which may be unmapped.
func ReadMemory(uint64, []byte) bool { return false }
