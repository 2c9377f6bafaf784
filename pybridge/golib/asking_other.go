//go:build !linux

package main

// mayAsk: the folder's mode keeps others out.
func mayAsk(int) bool { return true }
