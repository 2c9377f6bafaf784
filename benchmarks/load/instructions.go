//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// counters count the instructions of a process: one counter for each thread that exists
// when they are opened; threads that these start inherit it. If the machine has no such
// counter, or denies access to it, instructions are not reported.
type counters struct {
	files    []int
	userOnly bool // /proc/sys/kernel/perf_event_paranoid may allow user mode only
}

// openCounters opens counters of all instructions of a process, or of those in user mode if
// only these may be counted, or none; it does not fail.
func openCounters(pid int) counters {
	if files := countThreads(pid, 0); files != nil {
		return counters{files: files}
	}
	return counters{files: countThreads(pid, unix.PerfBitExcludeKernel), userOnly: true}
}

// countThreads opens the counters of all threads, or of none: a partial sum would be
// mistaken for the sum.
func countThreads(pid int, bits uint64) []int {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil
	}
	var files []int
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			continue
		}
		wanted := unix.PerfEventAttr{
			Type:   unix.PERF_TYPE_HARDWARE,
			Size:   unix.PERF_ATTR_SIZE_VER1,
			Config: unix.PERF_COUNT_HW_INSTRUCTIONS,
			Bits:   unix.PerfBitInherit | unix.PerfBitExcludeHv | bits,
		}
		file, err := unix.PerfEventOpen(&wanted, id, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ESRCH) {
			continue // the thread has ended
		}
		if err != nil {
			for _, file := range files {
				_ = unix.Close(file)
			}
			return nil
		}
		files = append(files, file)
	}
	return files
}

// read returns the sum of the counters.
func (c counters) read() int64 {
	var sum int64
	for _, file := range c.files {
		var one [8]byte
		if n, err := unix.Read(file, one[:]); err == nil && n == len(one) {
			sum += int64(binary.NativeEndian.Uint64(one[:]))
		}
	}
	return sum
}
