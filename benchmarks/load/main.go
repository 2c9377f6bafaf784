//go:build linux

// Command load has the Go programs of the benchmarks: gnet's echo server, which shows the rate
// of an idiomatic Go event loop on one core (a ceiling beside the one in C), and the client of
// the TLS churn and storms. That client uses crypto/tls, because it took less CPU time than
// OpenSSL in C.
//
// The caller pins the process to one core, which also gives the Go runtime one P.
package main

import (
	"fmt"
	"os"
)

// main runs the command line, and exits with 1 and the error on stderr if that fails.
func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// run runs the command of the arguments. Other arguments give an error with the usage.
func run(args []string) error {
	const usage = "usage: load serve | load tls-churn|tls-storm PORT CONNECTIONS SIZE WARMUP SECONDS"
	if len(args) == 1 && args[0] == "serve" {
		return serve()
	}
	if len(args) == 6 && args[0] == "tls-churn" {
		return churn(args[1:])
	}
	if len(args) == 6 && args[0] == "tls-storm" {
		return storm(args[1:])
	}
	return fmt.Errorf("%s", usage)
}
