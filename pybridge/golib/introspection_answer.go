package main

/*
#include "abi.h"
#include "monitor.h"

typedef void (*each_reactor)(gl_shared *, void *);
void goloop_add_reactor(gl_shared *shared, void *unused);

static inline void add_all_reactors(void) { monitor_each(goloop_add_reactor, NULL); }

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
	"github.com/goloop/goloop/pybridge/golib/jsontext"
	"github.com/goloop/goloop/pybridge/golib/pycode"
	"golang.org/x/sys/unix"
)

// Time limits for each part of a request and of its answer, and the longest request in bytes.
const (
	requestTimeout = time.Second
	answerTimeout  = 10 * time.Second
	maxRequest     = 4096
)

// answerDraft is the answer that is being written. The process has one: the writer locks its mutex, and the
// monitor's mutex while it reads a reactor.
var answerDraft struct {
	sync.Mutex
	text   []byte
	sample netloop.Sample
}

// goloop_answer_client answers any request with the facts that are known without Python, closes the
// connection and returns -1. A C thread (monitor_helper_threads.c) calls it and does nothing else. For a
// request for a trace it starts the trace instead and returns as goloop_trace_continue does.
//
//export goloop_answer_client
func goloop_answer_client(fd C.int32_t) C.int32_t {
	client := int(fd)
	// Read the whole request: unread bytes would reset the connection.
	question := make([]byte, maxRequest)
	for got := 0; got < len(question) && !bytes.Contains(question[:got], []byte("\n")) &&
		waitReady(client, unix.POLLIN, requestTimeout); {
		n, _, err := unix.Recvfrom(client, question[got:], unix.MSG_DONTWAIT)
		if n <= 0 || err != nil {
			break
		}
		got += n
	}
	if bytes.Contains(question, []byte(`"trace"`)) {
		return beginTrace(client)
	}
	sendAll(client, partialAnswer())
	closeClient(client)
	return -1
}

// closeClient ends a connection after its answer was sent.
func closeClient(client int) {
	_ = unix.Shutdown(client, unix.SHUT_WR)
	_ = unix.Close(client)
}

// sendAll sends a text to a client and waits while the client is slow. It returns false if the client is
// gone or did not read for answerTimeout. It does not close the connection.
func sendAll(client int, text []byte) bool {
	for len(text) > 0 && waitReady(client, unix.POLLOUT, answerTimeout) {
		n, err := unix.SendmsgN(client, text, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err != nil {
			break
		}
		text = text[n:]
	}
	return len(text) == 0
}

// waitReady waits for poll(2) events on a descriptor. It returns false after the timeout or an error.
func waitReady(fd int, events int16, timeout time.Duration) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: events}}
	n, err := unix.Poll(p, int(timeout/time.Millisecond))
	return n == 1 && err == nil
}

// partialAnswer returns the answer that needs no Python: the metrics and stacks of all reactors and the
// profile, as JSON.
func partialAnswer() []byte {
	answerDraft.Lock()
	defer answerDraft.Unlock()
	answerDraft.text = append([]byte(`{"protocol":1,"partial":true,"pid":`), strconv.Itoa(unix.Getpid())...)
	answerDraft.text = append(answerDraft.text, `,"loops":[`...)
	C.add_all_reactors()
	answerDraft.text = append(bytes.TrimSuffix(answerDraft.text, []byte(",")), `],"profile":`...)
	return append(append(answerDraft.text, processProfile.Text()...), '}')
}

// goloop_add_reactor appends a reactor's metrics and the stack of its thread to the answer. It is called
// for each reactor with the monitor's mutex.
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
	t := append(answerDraft.text, `{"running":`...)
	t = strconv.AppendBool(t, running)
	t = strconv.AppendUint(append(t, `,"number":`...), uint64(atomic.LoadUint32(&sh.Number)), 10)
	t = addSeconds(t, "blocked_for", blocked)
	t = addSeconds(t, "clock", now)
	t = append(t, `,"stack":[`...)
	if running && C.sample(shared, (*C.gl_sample)(unsafe.Pointer(&answerDraft.sample))) != 0 {
		t = addStack(t, (*netloop.Python)(unsafe.Pointer(shared.python)), &answerDraft.sample)
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
	answerDraft.text = append(t, "}},"...)
}

// addSeconds appends a JSON member with a time in seconds.
func addSeconds(t []byte, name string, ns int64) []byte {
	t = append(t, `,"`+name+`":`...)
	return strconv.AppendFloat(t, float64(ns)/1e9, 'f', 6, 64)
}

// addStack appends the frames of a sample as JSON, innermost last. Frames without a valid code object are
// left out.
func addStack(t []byte, py *netloop.Python, s *netloop.Sample) []byte {
	before := ""
	for i := int(s.Frames) - 1; i >= 0; i-- {
		f := s.Frame[i]
		c, state := pycode.Read(py, f.Code, pycode.MaxName, 2*pycode.MaxName)
		if state != pycode.IsCode {
			continue
		}
		t = jsontext.AppendPlace(append(t, before...), c.Function, c.File, int64(pycode.Line(py, &c, f.Code, f.Instruction)))
		before = ","
	}
	return t
}
