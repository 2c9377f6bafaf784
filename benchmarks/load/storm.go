//go:build linux

package main

import (
	"crypto/tls"
	"fmt"
	"time"
)

// storm opens many TLS connections at once, waits until all of them have ended in the way
// of churn, and repeats this until its time is over. It prints "storm" when the first
// measured connections begin, so that a server can start to record its delays, and at the
// end the number of ended connections. The warm-up is one such storm, which is not counted.
func storm(args []string) error {
	asked, err := parse(args)
	if err != nil {
		return err
	}
	config := churnConfig()
	question := payload(asked.size)
	ends := make(chan error)
	number := 0
	once := func() error {
		for range asked.connections {
			number++
			go func(number int) {
				ends <- converse(asked.address, number, config, question, make([]byte, asked.size))
			}(number)
		}
		var failed error
		for range asked.connections {
			if err := <-ends; err != nil {
				failed = err
			}
		}
		return failed
	}
	if err := once(); err != nil {
		return err
	}
	fmt.Println("storm")
	began := time.Now()
	handshakes := int64(0)
	for handshakes == 0 || time.Since(began) < asked.window {
		if err := once(); err != nil {
			return err
		}
		handshakes += int64(asked.connections)
	}
	return printResult(handshakes, time.Since(began))
}

// churnConfig returns a configuration that has TLS 1.3 and the key exchange that OpenSSL
// prefers, the same for every version of Go.
func churnConfig() *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, // the server is known
		MinVersion:         tls.VersionTLS13,
		CurvePreferences:   []tls.CurveID{tls.X25519},
	}
}
