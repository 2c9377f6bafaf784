//go:build linux

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// result is one measured window, with the same keys as the C generator's.
type result struct {
	Messages   int64   `json:"messages"`
	Seconds    float64 `json:"seconds"`
	ClientCPU  float64 `json:"client_cpu"` // seconds of CPU
	ServerCPU  float64 `json:"server_cpu"` // seconds of CPU
	User       float64 `json:"server_user,omitempty"`
	System     float64 `json:"server_system,omitempty"`
	All        int64   `json:"instructions,omitempty"`      // the server's instructions
	UserMode   int64   `json:"user_instructions,omitempty"` // if only user mode may be counted
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Cores      int     `json:"cores"`      // client's and server's; 0: not pinned
	Idle       float64 `json:"idle"`       // seconds, of these cores together
	Steal      float64 `json:"steal"`      // seconds, of these cores together
	Interrupts float64 `json:"interrupts"` // seconds, of these cores together
}

// request is a parsed command line.
type request struct {
	address        string
	connections    int
	size           int
	warmup, window time.Duration
	server         int // process id
}

// parse reads PORT CONNECTIONS SIZE WARMUP SECONDS SERVER_PID; args must have these six. It
// returns an error for an argument that is not a number, and for CONNECTIONS or SIZE below
// 1.
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
		server:      int(numbers[5]),
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

// meter reads the clocks of a window: the CPU clocks of client and server, and the kernel's
// account of the cores that they are pinned to.
type meter struct {
	pid    int
	counts counters
	server int32 // the clock id of the server's process CPU time
	cores  unix.CPUSet
}

// reading is a meter's state at one time.
type reading struct {
	at                      time.Time
	messages                int64
	client, server          time.Duration
	user, system            float64 // ticks of the server's CPU
	instructions            int64
	idle, steal, interrupts float64 // seconds since the system's start
}

// processClock is Linux's id of the CPU clock of a whole process (the macro
// MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED in include/linux/posix-timers.h).
func processClock(pid int) int32 { return int32(^pid<<3 | 2) }

// newMeter opens the counters of the server's instructions and finds the cores; there are
// none if client or server is not pinned.
func newMeter(server int) meter {
	m := meter{pid: server, counts: openCounters(server), server: processClock(server)}
	var mine, theirs unix.CPUSet
	if unix.SchedGetaffinity(0, &mine) != nil || unix.SchedGetaffinity(server, &theirs) != nil {
		return m
	}
	if mine.Count() == 1 && theirs.Count() == 1 {
		for i := range mine {
			m.cores[i] = mine[i] | theirs[i]
		}
	}
	return m
}

// cpu reads a CPU clock, such as unix.CLOCK_PROCESS_CPUTIME_ID or the result of
// processClock. It returns an error if the process no longer exists.
func cpu(clock int32) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("clock_gettime: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// read returns the meter's state, with the time and the number of messages of the caller.
// It returns an error if a CPU clock or /proc/stat cannot be read.
func (m *meter) read(now time.Time, messages int64) (reading, error) {
	r := reading{at: now, messages: messages}
	var err error
	if r.client, err = cpu(unix.CLOCK_PROCESS_CPUTIME_ID); err != nil {
		return r, err
	}
	if r.server, err = cpu(m.server); err != nil {
		return r, err
	}
	r.user, r.system = modes(m.pid)
	r.instructions = m.counts.read()
	return r, m.account(&r)
}

// modes reads how much CPU time a process used in user mode and in the kernel, in ticks:
// fields 14 and 15 of /proc/PID/stat, proc_pid_stat(5). The unit of a tick is coarse, so
// only the shares of the two are used; 0 and 0 if the file can't be read.
func modes(pid int) (user, system float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// The second field, the name, is in parentheses and may contain any character.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 13 {
		return 0, 0
	}
	user, _ = strconv.ParseFloat(fields[11], 64)
	system, _ = strconv.ParseFloat(fields[12], 64)
	return user, system
}

// account adds to r the times of the two cores in /proc/stat: proc_stat(5), in units of a
// hundredth of a second, which sysconf(_SC_CLK_TCK) is on every Linux port. It returns an
// error if the file cannot be opened.
func (m *meter) account(r *reading) error {
	const tick = 0.01
	file, err := os.Open("/proc/stat")
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 9 || !strings.HasPrefix(fields[0], "cpu") {
			break
		}
		core, err := strconv.Atoi(strings.TrimPrefix(fields[0], "cpu"))
		if err != nil || !m.cores.IsSet(core) {
			continue // the first line is the sum of all cores, without a number
		}
		// user nice system idle iowait irq softirq steal
		column := func(i int) float64 {
			n, _ := strconv.ParseFloat(fields[i], 64)
			return n * tick
		}
		r.idle += column(4) + column(5)
		r.interrupts += column(6) + column(7)
		r.steal += column(8)
	}
	return nil
}

// between returns the result of the window between two readings; it sorts the latencies in
// place.
func (m *meter) between(first, last reading, latencies []time.Duration) result {
	cpu := (last.server - first.server).Seconds()
	user, system := last.user-first.user, last.system-first.system
	ticks := max(user+system, 1)
	instructions := last.instructions - first.instructions
	userMode := int64(0)
	if m.counts.userOnly {
		instructions, userMode = 0, instructions
	}
	return result{
		All:        instructions,
		UserMode:   userMode,
		User:       cpu * user / ticks,
		System:     cpu * system / ticks,
		Messages:   last.messages - first.messages,
		Seconds:    last.at.Sub(first.at).Seconds(),
		ClientCPU:  (last.client - first.client).Seconds(),
		ServerCPU:  cpu,
		P50:        percentile(latencies, 0.5),
		P99:        percentile(latencies, 0.99),
		Cores:      m.cores.Count(),
		Idle:       last.idle - first.idle,
		Steal:      last.steal - first.steal,
		Interrupts: last.interrupts - first.interrupts,
	}
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
