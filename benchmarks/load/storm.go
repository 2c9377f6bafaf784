//go:build linux

package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// storm opens many TLS connections at once, waits until all have ended as churn's do,
// and opens as many again, for a while. It says "storm" when the first ones begin, so
// that a server can look at its own clock from then on, and prints at the end how many
// have ended. The warm-up is one such storm, of which nothing is said.
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
	handshakes := 0
	for handshakes == 0 || time.Since(began) < asked.window {
		if err := once(); err != nil {
			return err
		}
		handshakes += asked.connections
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"messages": float64(handshakes),
		"seconds":  time.Since(began).Seconds(),
	})
}

// churnConfig is TLS 1.3, and the key exchange that OpenSSL prefers, for every Go version
// alike.
func churnConfig() *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, // it measures, and the server is its own
		MinVersion:         tls.VersionTLS13,
		CurvePreferences:   []tls.CurveID{tls.X25519},
	}
}
