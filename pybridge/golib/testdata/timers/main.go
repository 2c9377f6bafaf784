// Command timers waits for timers in several ways, and prints the descriptors that are open after.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// main waits for timers of goroutines, for a pipe and for the scavenger, and panics if an early timer does not
// end the wait for a later one or the pipe cannot be read.
func main() {
	runtime.GOMAXPROCS(2)
	// An earlier timer ends the wait for a later one.
	late := time.AfterFunc(time.Hour, func() { panic("an hour is over") })
	var all sync.WaitGroup
	for i := range 40 {
		all.Add(1)
		go func() {
			defer all.Done()
			for j := range 20 {
				time.Sleep(time.Duration((i*j)%7) * 100 * time.Microsecond)
			}
		}()
	}
	all.Wait()
	late.Stop()
	// A pipe, which package os would give to the poller.
	reading, writing, err := os.Pipe()
	if err != nil {
		panic(err)
	}
	go func() {
		time.Sleep(time.Millisecond)
		writing.WriteString("x")
		writing.Close()
	}()
	if n, err := reading.Read(make([]byte, 2)); n != 1 || err != nil {
		panic(fmt.Sprint(n, err))
	}
	reading.Close()
	// The scavenger gives memory back, and sleeps by a timer in between.
	memory := make([][]byte, 0, 64)
	for range 64 {
		memory = append(memory, make([]byte, 1<<20))
	}
	runtime.KeepAlive(memory)
	memory = nil
	runtime.GC()
	runtime.GC()
	time.Sleep(20 * time.Millisecond)
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		if to, err := os.Readlink("/proc/self/fd/" + name.Name()); err == nil && strings.HasPrefix(to, "anon_inode:") {
			fmt.Println(name.Name(), to)
		}
	}
	fmt.Println("done")
}
