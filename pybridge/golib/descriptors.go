package main

import "time"

// Go's runtime opens an epoll and an eventfd of its own with the first timer, which
// its memory scavenger sets whenever it likes. Two descriptors that appear in the
// middle of a program look like a leak, and are one surprise more where the limit is
// tight, so they are opened with the library.
func init() {
	time.AfterFunc(time.Hour, func() {}).Stop()
}
