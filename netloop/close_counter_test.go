//go:build !libkqueue

package netloop

const closesDelayed = false // see kqueue_library_test.go
