//go:build linux

// Command load holds what the benchmarks have in Go: gnet's echo server, which shows what an
// idiomatic Go event loop reaches on one core (a ceiling beside the raw C one), and the client
// of the TLS churn and storms, which is crypto/tls's, because that was measured against OpenSSL
// in C and found cheaper.
//
// The caller pins the process to one core, which also gives the Go runtime one P.
package main

import (
	"fmt"
	"os"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	const usage = "usage: load serve | load tls-churn|tls-storm PORT CONNECTIONS SIZE WARMUP SECONDS SERVER_PID"
	if len(args) == 1 && args[0] == "serve" {
		return serve()
	}
	if len(args) == 7 && args[0] == "tls-churn" {
		return churn(args[1:])
	}
	if len(args) == 7 && args[0] == "tls-storm" {
		return storm(args[1:])
	}
	return fmt.Errorf("%s", usage)
}
