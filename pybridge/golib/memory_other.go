//go:build !linux

package main

// readMemory would copy memory of this process that may not be there.
func readMemory(uint64, []byte) bool { return false }
