//go:build linux

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"
)

// result is one measured window, with the same keys as the C generator's.
type result struct {
	Messages int64   `json:"messages"`
	Seconds  float64 `json:"seconds"`
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
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

// percentile returns a percentile of the latencies in microseconds, for a share from 0 to
// 1; 0 without latencies. It sorts the slice in place.
func percentile(latencies []time.Duration, share float64) float64 {
	if len(latencies) == 0 {
		return 0
	}
	slices.Sort(latencies)
	at := min(int(share*float64(len(latencies))), len(latencies)-1)
	return float64(latencies[at].Nanoseconds()) / 1e3
}
