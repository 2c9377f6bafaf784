//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
)

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
	meter   meter
	start   time.Time
	window  time.Duration

	messages  int64
	recording bool
	done      bool
	first     reading
	latencies []time.Duration
	outcome   chan error
	result    result
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
		g.recording = true
		g.first, err = g.meter.read(now, g.messages)
		return err
	case g.recording && now.Sub(g.first.at) >= g.window:
		g.done = true
		last, err := g.meter.read(now, g.messages)
		if err != nil {
			return err
		}
		g.result = g.meter.between(g.first, last, g.latencies)
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

// generate runs the load and prints its result as one JSON object.
func generate(args []string) error {
	asked, err := parse(args)
	if err != nil {
		return err
	}
	g := &generator{
		payload: payload(asked.size),
		meter:   newMeter(asked.server),
		start:   time.Now().Add(asked.warmup),
		window:  asked.window,
		outcome: make(chan error, 1),
		// Room for a million messages a second: growing a slice while the
		// clock runs would be part of the measurement.
		latencies: make([]time.Duration, 0, int(asked.window.Seconds()*1e6)+1),
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
	for range asked.connections {
		if _, err := client.Dial("tcp", asked.address); err != nil {
			return fmt.Errorf("dial %s: %w", asked.address, err)
		}
	}
	const grace = 10 * time.Second
	select {
	case err = <-g.outcome:
	case <-time.After(asked.warmup + asked.window + grace):
		err = errors.New("no answer came for 10 seconds")
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(g.result)
}
