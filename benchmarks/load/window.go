//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// printResult prints the result of a window as JSON, with the keys of the C generator.
func printResult(messages int64, took time.Duration) error {
	_, err := fmt.Printf("{\"messages\": %d, \"seconds\": %f}\n", messages, took.Seconds())
	return err
}

// request is a parsed command line.
type request struct {
	address        string
	connections    int
	size           int
	warmup, window time.Duration
}

// parse reads PORT CONNECTIONS SIZE WARMUP SECONDS; args must have these five. It returns an
// error for an argument that is not a number, and for CONNECTIONS or SIZE below 1.
func parse(args []string) (request, error) {
	numbers := make([]float64, len(args))
	for i, arg := range args {
		n, err := strconv.ParseFloat(arg, 64)
		if err != nil {
			return request{}, fmt.Errorf("argument %d: %w", i+1, err)
		}
		numbers[i] = n
	}
	asked := request{
		address:     fmt.Sprintf("127.0.0.1:%d", int(numbers[0])),
		connections: int(numbers[1]),
		size:        int(numbers[2]),
		warmup:      time.Duration(numbers[3] * float64(time.Second)),
		window:      time.Duration(numbers[4] * float64(time.Second)),
	}
	if asked.connections < 1 || asked.size < 1 {
		return request{}, errors.New("CONNECTIONS and SIZE are at least 1")
	}
	return asked, nil
}

// payload returns a message of a given size, which is printable and ends with its only
// newline, as the C generator's.
func payload(size int) []byte {
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(' ' + i%95)
	}
	p[size-1] = '\n'
	return p
}

// input is the standard input, with the lines that end a pause.
var input = bufio.NewReader(os.Stdin)

// pause prints a word and waits for a line: the reader takes its accounts meanwhile. The
// end of the input ends the pause, too.
func pause(word string) {
	fmt.Println(word)
	_, _ = input.ReadString('\n')
}
