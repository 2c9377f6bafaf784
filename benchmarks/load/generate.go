package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
)

// result is one measured window, with the same keys as the C generator's.
type result struct {
	Messages  int64   `json:"messages"`
	Seconds   float64 `json:"seconds"`
	ClientCPU float64 `json:"client_cpu"` // seconds of CPU
	ServerCPU float64 `json:"server_cpu"` // seconds of CPU
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
}

// conversation is the state of one connection: how much of the answer under way
// is still to come, when its question was sent, and whether an answer of this
// connection was already compared byte by byte.
type conversation struct {
	expected int
	sentAt   time.Time
	checked  bool
}

// generator keeps one message under way on each connection and measures from
// the end of the warm-up to the end of the window. All of its methods run on
// gnet's one event loop.
type generator struct {
	gnet.BuiltinEventEngine
	payload []byte
	server  int32 // the clock id of the server's process CPU time
	start   time.Time
	window  time.Duration

	messages  int64
	recording bool
	done      bool
	began     time.Time
	first     int64
	clientCPU time.Duration
	serverCPU time.Duration
	latencies []time.Duration
	outcome   chan error
	result    result
}

// processClock is Linux's id of the CPU clock of a whole process (the macro
// MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED in include/linux/posix-timers.h).
func processClock(pid int) int32 { return int32(^pid<<3 | 2) }

func cpu(clock int32) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("clock_gettime: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// OnOpen sends the first message.
func (g *generator) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.SetContext(&conversation{expected: len(g.payload), sentAt: time.Now()})
	return g.payload, gnet.None
}

// OnTraffic counts the answer's bytes and sends the next message at its end.
func (g *generator) OnTraffic(c gnet.Conn) gnet.Action {
	state := c.Context().(*conversation)
	n := c.InboundBuffered()
	if n > state.expected {
		return g.finish(errors.New("an answer is longer than its question"))
	}
	if state.checked {
		if _, err := c.Discard(n); err != nil {
			return g.finish(fmt.Errorf("discard: %w", err))
		}
	} else {
		data, err := c.Next(n)
		if err != nil {
			return g.finish(fmt.Errorf("next: %w", err))
		}
		at := len(g.payload) - state.expected
		if !bytes.Equal(data, g.payload[at:at+n]) {
			return g.finish(errors.New("an answer differs from its question"))
		}
	}
	state.expected -= n
	if state.expected > 0 {
		return gnet.None
	}
	now := time.Now()
	if err := g.answered(now, now.Sub(state.sentAt)); err != nil || g.done {
		return g.finish(err)
	}
	*state = conversation{expected: len(g.payload), sentAt: now, checked: true}
	if _, err := c.Write(g.payload); err != nil {
		return g.finish(fmt.Errorf("write: %w", err))
	}
	return gnet.None
}

// OnClose ends the run with an error where the server hangs up before the end.
func (g *generator) OnClose(_ gnet.Conn, err error) gnet.Action {
	if !g.done {
		return g.finish(fmt.Errorf("the server closed a connection: %w", err))
	}
	return gnet.None
}

func (g *generator) answered(now time.Time, latency time.Duration) error {
	g.messages++
	var err error
	switch {
	case !g.recording && !now.Before(g.start):
		g.recording, g.began, g.first = true, now, g.messages
		if g.clientCPU, err = cpu(unix.CLOCK_PROCESS_CPUTIME_ID); err != nil {
			return err
		}
		g.serverCPU, err = cpu(g.server)
		return err
	case g.recording && now.Sub(g.began) >= g.window:
		g.done = true
		client, err := cpu(unix.CLOCK_PROCESS_CPUTIME_ID)
		if err != nil {
			return err
		}
		server, err := cpu(g.server)
		if err != nil {
			return err
		}
		g.result = result{
			Messages:  g.messages - g.first,
			Seconds:   now.Sub(g.began).Seconds(),
			ClientCPU: (client - g.clientCPU).Seconds(),
			ServerCPU: (server - g.serverCPU).Seconds(),
			P50:       percentile(g.latencies, 0.5),
			P99:       percentile(g.latencies, 0.99),
		}
	case g.recording:
		g.latencies = append(g.latencies, latency)
	}
	return nil
}

// finish reports the first outcome only; later ones come from the shutdown.
func (g *generator) finish(err error) gnet.Action {
	g.done = true
	select {
	case g.outcome <- err:
	default:
	}
	return gnet.Shutdown
}

// percentile is in microseconds; the slice is sorted in place.
func percentile(latencies []time.Duration, share float64) float64 {
	if len(latencies) == 0 {
		return 0
	}
	slices.Sort(latencies)
	at := min(int(share*float64(len(latencies))), len(latencies)-1)
	return float64(latencies[at].Nanoseconds()) / 1e3
}

// generate runs the load and prints its result as one JSON object.
func generate(args []string) error {
	numbers := make([]float64, len(args))
	for i, arg := range args {
		n, err := strconv.ParseFloat(arg, 64)
		if err != nil {
			return fmt.Errorf("argument %d: %w", i+1, err)
		}
		numbers[i] = n
	}
	port, connections, size := int(numbers[0]), int(numbers[1]), int(numbers[2])
	if connections < 1 || size < 1 {
		return errors.New("CONNECTIONS and SIZE are at least 1")
	}
	warmup := time.Duration(numbers[3] * float64(time.Second))
	window := time.Duration(numbers[4] * float64(time.Second))

	g := &generator{
		payload: payload(size),
		server:  processClock(int(numbers[5])),
		start:   time.Now().Add(warmup),
		window:  window,
		outcome: make(chan error, 1),
		// Room for a million messages a second: growing a slice while the
		// clock runs would be part of the measurement.
		latencies: make([]time.Duration, 0, int(window.Seconds()*1e6)+1),
	}
	client, err := gnet.NewClient(g,
		gnet.WithNumEventLoop(1),
		gnet.WithReadBufferCap(readBuffer),
		gnet.WithTCPNoDelay(gnet.TCPNoDelay),
		gnet.WithLogLevel(logging.ErrorLevel),
	)
	if err != nil {
		return fmt.Errorf("new client: %w", err)
	}
	if err := client.Start(); err != nil {
		return fmt.Errorf("start client: %w", err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for range connections {
		if _, err := client.Dial("tcp", address); err != nil {
			return fmt.Errorf("dial %s: %w", address, err)
		}
	}
	const grace = 10 * time.Second
	select {
	case err = <-g.outcome:
	case <-time.After(warmup + window + grace):
		err = errors.New("no answer came for 10 seconds")
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(g.result)
}

// payload is printable and ends with its only newline, as the C generator's.
func payload(size int) []byte {
	p := make([]byte, size)
	for i := range p {
		p[i] = byte(' ' + i%95)
	}
	p[size-1] = '\n'
	return p
}
