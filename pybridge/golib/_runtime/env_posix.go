// Package runtime: this file takes the place of Go's own src/runtime/env_posix.go in the library
// (go build -overlay, in build_backend/goloop_build/commands.py).
//
// Go's runtime reads GODEBUG, GOGC, GOMAXPROCS, GOMEMLIMIT and GOTRACEBACK from the environment of
// the process. In a pod they are meant for programs in Go: GODEBUG=gctrace=1 would write Go's traces
// to the stderr of a Python program, a small GOMEMLIMIT would keep Go's collector busy, and a
// misspelt one would end the process. So the library's runtime reads each of them with the prefix
// GOLOOP_ only. The environment itself is left as it is, for Python and for children.
//
// The code below gogetenv is a copy of Go's.

package runtime

import "unsafe"

const envPrefix = "GOLOOP_"

// gogetenv returns the value of GOLOOP_key in the environment, or "". It does not read the
// variable key.
func gogetenv(key string) string {
	env := environ()
	if env == nil {
		throw("getenv before env init")
	}
	n := len(envPrefix) + len(key)
	for _, s := range env {
		if len(s) > n && s[n] == '=' && s[:len(envPrefix)] == envPrefix && s[len(envPrefix):n] == key {
			return s[n+1:]
		}
	}
	return ""
}

//go:linkname _cgo_setenv
var _cgo_setenv unsafe.Pointer // pointer to C function

//go:linkname _cgo_unsetenv
var _cgo_unsetenv unsafe.Pointer // pointer to C function

// setenv_c sets a variable in the C environment if cgo is loaded.
func setenv_c(k string, v string) {
	if _cgo_setenv == nil {
		return
	}
	arg := [2]unsafe.Pointer{cstring(k), cstring(v)}
	asmcgocall(_cgo_setenv, unsafe.Pointer(&arg))
}

// unsetenv_c removes a variable from the C environment if cgo is loaded.
func unsetenv_c(k string) {
	if _cgo_unsetenv == nil {
		return
	}
	arg := [1]unsafe.Pointer{cstring(k)}
	asmcgocall(_cgo_unsetenv, unsafe.Pointer(&arg))
}

// cstring returns the address of a copy of s with a final zero.
func cstring(s string) unsafe.Pointer {
	p := make([]byte, len(s)+1)
	copy(p, s)
	return unsafe.Pointer(&p[0])
}
