package main

/*
#include "abi.h"
#include "monitor.h"

typedef void (*each_reactor)(gl_shared *, void *);
void goloop_add_reactor(gl_shared *shared, void *unused);

static inline void each_reactor_adds(void) { monitor_each(goloop_add_reactor, NULL); }

static inline uint32_t sample(gl_shared *sh, gl_sample *to) { return sh->watchdog->sample(sh, to); }
*/
import "C"

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goloop/goloop/netloop"
	"golang.org/x/sys/unix"
)

// A client is given so long for each piece of its question, and of the answer.
const (
	questionTime = time.Second
	answerTime   = 10 * time.Second
	questionMost = 4096
)

// partial is an answer that is being written. There is one for the process: the writer holds
// the mutex, and the monitor's while it looks at a reactor.
var partial struct {
	sync.Mutex
	text   []byte
	sample netloop.Sample
}

// goloop_answer answers a question, whatever it is, with what is known without Python, closes
// the connection, and returns -1. A thread of C's calls it (monitor.c), which has nothing else to do.
// A request for a trace is the exception: it returns as goloop_trace_begin does.
//
//export goloop_answer
func goloop_answer(fd C.int32_t) C.int32_t {
	asker := int(fd)
	// What stays unread would be a reset for the client.
	question := make([]byte, questionMost)
	for got := 0; got < len(question) && !bytes.Contains(question[:got], []byte("\n")) &&
		readyFor(asker, unix.POLLIN, questionTime); {
		n, _, err := unix.Recvfrom(asker, question[got:], unix.MSG_DONTWAIT)
		if n <= 0 || err != nil {
			break
		}
		got += n
	}
	if bytes.Contains(question, []byte(`"trace"`)) {
		return beginTrace(asker)
	}
	sendAll(asker, partialAnswer())
	hangUp(asker)
	return -1
}

func hangUp(asker int) {
	_ = unix.Shutdown(asker, unix.SHUT_WR)
	_ = unix.Close(asker)
}

func sendAll(asker int, text []byte) bool {
	for len(text) > 0 && readyFor(asker, unix.POLLOUT, answerTime) {
		n, err := unix.SendmsgN(asker, text, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != nil {
			break
		}
		text = text[n:]
	}
	return len(text) == 0
}

func readyFor(fd int, events int16, timeout time.Duration) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := unix.Poll(p, int(timeout/time.Millisecond))
	return n == 1 && err == nil
}

func partialAnswer() []byte {
	partial.Lock()
	defer partial.Unlock()
	partial.text = append([]byte(`{"protocol":1,"partial":true,"pid":`), strconv.Itoa(unix.Getpid())...)
	partial.text = append(partial.text, `,"loops":[`...)
	C.each_reactor_adds()
	partial.text = append(bytes.TrimSuffix(partial.text, []byte(",")), `],"profile":`...)
	return append(append(partial.text, profiled.text()...), '}')
}

// goloop_add_reactor is called for each reactor in turn, with the monitor's mutex.
//
//export goloop_add_reactor
func goloop_add_reactor(shared *C.gl_shared, _ unsafe.Pointer) {
	sh := (*netloop.Shared)(unsafe.Pointer(shared))
	busy, ran := atomic.LoadInt64(&sh.Busy), atomic.LoadInt64(&sh.Ran)
	now, blocked := int64(C.monitor_now()), int64(0)
	for _, each := range []*int64{&busy, &ran} {
		if *each < 0 {
			*each += now
		}
	}
	running := atomic.LoadUint32(&sh.LoopActive) != 0
	if running {
		blocked = max(now-atomic.LoadInt64(&sh.Now), 0)
	}
	t := append(partial.text, `{"running":`...)
	t = strconv.AppendBool(t, running)
	t = strconv.AppendUint(append(t, `,"number":`...), uint64(atomic.LoadUint32(&sh.Number)), 10)
	t = addSeconds(t, "blocked_for", blocked)
	t = addSeconds(t, "clock", now)
	t = append(t, `,"stack":[`...)
	if running && C.sample(shared, (*C.gl_sample)(unsafe.Pointer(&partial.sample))) != 0 {
		t = addStack(t, (*netloop.Python)(unsafe.Pointer(shared.python)), &partial.sample)
	}
	t = append(t, `],"metrics":{"loops":1`...)
	m := &sh.Metrics
	for _, each := range []struct {
		name string
		h    *netloop.Histogram
	}{
		{"iteration_time", &m.IterationTime}, {"poll_time", &m.PollTime},
		{"events_per_turn", &m.EventsPerTurn}, {"ready_wait", &m.ReadyWait},
		{"timer_lateness", &m.TimerLateness}, {"gil_wait", &m.GILWait},
	} {
		t = append(t, `,"`+each.name+`":"`...)
		if each.h.Count != 0 {
			memory := unsafe.Slice((*byte)(unsafe.Pointer(each.h)), unsafe.Sizeof(*each.h))
			t = base64.StdEncoding.AppendEncode(t, memory)
		}
		t = append(t, '"')
	}
	for _, each := range []struct {
		name  string
		value uint64
	}{
		{"time_busy", uint64(busy)}, {"time_idle", uint64(max(ran-busy, 0))}, {"turns", m.Turns},
		{"bytes_received", m.BytesReceived}, {"bytes_sent", m.BytesSent},
		{"reads", m.Reads}, {"writes", m.Writes}, {"late_writes", m.LateWrites},
		{"connections_accepted", m.ConnectionsAccepted}, {"blocked_spells", m.BlockedSpells},
		{"blocked_for", uint64(blocked)},
	} {
		t = append(t, `,"`+each.name+`":`...)
		t = strconv.AppendUint(t, each.value, 10)
	}
	partial.text = append(t, "}},"...)
}

func addSeconds(t []byte, name string, ns int64) []byte {
	t = append(t, `,"`+name+`":`...)
	return strconv.AppendFloat(t, float64(ns)/1e9, 'f', 6, 64)
}

// addStack adds frames as JSON, innermost last.
func addStack(t []byte, py *netloop.Python, s *netloop.Sample) []byte {
	before := ""
	for i := int(s.Frames) - 1; i >= 0; i-- {
		f := s.Frame[i]
		c, state := readCode(py, f.Code, nameRoom, 2*nameRoom)
		if state != isCode {
			continue
		}
		t = appendPlace(append(t, before...), c.function, c.file, int64(readLine(py, &c, f.Code, f.Instruction)))
		before = ","
	}
	return t
}
