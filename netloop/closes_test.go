//go:build !libkqueue

package netloop

const closesLate = false // kqueue_library_test.go
