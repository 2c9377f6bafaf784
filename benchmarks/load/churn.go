//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// patience is the limit of one connection's time, from connect to end.
const patience = 10 * time.Second

// sources is the number of addresses of 127.0.0.0/24 from which connections are made in turn,
// so that ports in TIME_WAIT never run out.
const sources = 250

// churn opens TLS connections as fast as the server serves them and prints the
// result of one window. Each makes a full handshake, echoes once, sends close_notify, and
// waits for the server's close_notify and the end of the connection.
func churn(args []string) error {
	asked, err := parse(args)
	if err != nil {
		return err
	}
	config := churnConfig()
	ends := make(chan error)
	for i := range asked.connections {
		go func() {
			question, answer := payload(asked.size), make([]byte, asked.size)
			for number := i; ; number += asked.connections {
				ends <- converse(asked.address, number, config, question, answer)
			}
		}()
	}
	return measure(asked, ends)
}

// measure counts ended connections, prints the result of the window, and returns. It returns the
// error of the first connection that fails. The warm-up begins after as many connections have
// ended as are open at a time.
func measure(asked request, ends <-chan error) error {
	var messages, before int64
	var start, began time.Time
	for err := range ends {
		if err != nil {
			return err
		}
		messages++
		now := time.Now()
		switch {
		case messages == int64(asked.connections):
			start = now.Add(asked.warmup)
		case start.IsZero() || now.Before(start):
		case began.IsZero():
			pause("begin")
			// The pause, which a busy machine makes long, and its answers are no part of the window.
			answered, err := drain(ends)
			if err != nil {
				return err
			}
			messages += answered
			before, began = messages, time.Now()
		case now.Sub(began) >= asked.window:
			pause("end")
			return printResult(messages-before, now.Sub(began))
		}
	}
	return errors.New("no connection is left")
}

// drain returns the number of connections that have ended without an error by now.
func drain(ends <-chan error) (int64, error) {
	for count := int64(0); ; count++ {
		select {
		case err := <-ends:
			if err != nil {
				return count, err
			}
		default:
			return count, nil
		}
	}
}

// converse runs one connection from connect to end; its number selects the source address.
// The answer is read into a buffer of the question's length. It returns an error if a call
// fails or takes longer than patience, or if the answer differs from the question.
func converse(address string, number int, config *tls.Config, question, answer []byte) error {
	dialer := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+number%sources))},
		Deadline:  time.Now().Add(patience),
	}
	connection, err := tls.DialWithDialer(&dialer, "tcp", address, config)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := connection.Write(question); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if _, err := io.ReadFull(connection, answer); err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if !bytes.Equal(question, answer) {
		return errors.New("an answer differs from its question")
	}
	if err := connection.CloseWrite(); err != nil {
		return fmt.Errorf("close_notify: %w", err)
	}
	if n, err := io.Copy(io.Discard, connection); err != nil {
		return fmt.Errorf("read the end: %w", err)
	} else if n > 0 {
		return errors.New("an answer is longer than its question")
	}
	return nil
}
