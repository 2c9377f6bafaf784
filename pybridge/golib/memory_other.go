//go:build !linux

package main

// readMemory is not implemented: other systems have no call that reads memory which may be unmapped.
func readMemory(uint64, []byte) bool { return false }
