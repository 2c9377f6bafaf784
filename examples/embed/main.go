// Embed is a Go program that hosts CPython, which runs an asyncio application on
// goloop; a goroutine of the same program is its client:
//
//	Go program --- goroutine ------------ TCP -----------+
//	     |                                               v
//	     +--- main thread: CPython --- goloop.run --- upper-case server
//
// Two Go runtimes live in this process, the program's own and the one inside
// goloop's library. They share nothing: each has its own threads, heap and garbage
// collector, and does not know of the other.
//
// The program's duties:
//
//   - Python stays on one thread (runtime.LockOSThread before Py_Initialize), as
//     CPython keeps its thread state there;
//   - signals go to Python once Py_Initialize has run: SIGINT is a
//     KeyboardInterrupt, and os/signal does not receive it.
//
// CPython's API comes from go.nhat.io/cpy, the successor of DataDog's go-python3,
// which stopped at CPython 3.7. Each of its releases builds on one CPython, this
// one on 3.12.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"

	python "go.nhat.io/cpy/v3"
)

// application serves until its first client has disconnected. It writes its port to
// the descriptor whose number replaces the placeholder.
const application = `
import asyncio, os, sys
import goloop

async def main(announce):
    gone = asyncio.Event()

    async def shout(reader, writer):
        while line := await reader.readline():
            writer.write(line.upper())
        writer.close()
        gone.set()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    async with server:
        with os.fdopen(announce, "w") as pipe:
            pipe.write(str(server.sockets[0].getsockname()[1]))
        await gone.wait()
    loop = asyncio.get_running_loop()
    print(f"Python {sys.version.split()[0]} on {type(loop).__module__}.{type(loop).__name__}", flush=True)

goloop.run(main(%d))
`

// lines is the number of lines that the client sends.
const lines = 1000

// talk is the client: it sends each line and reads the answer, which must be the line in upper
// case. It returns an error if the connection fails or an answer differs. Go's garbage collector
// runs meanwhile, while Python executes.
func talk(port string) error {
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		return fmt.Errorf("talk to the application: %w", err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for i := range lines {
		line := fmt.Sprintf("line %d\n", i)
		if _, err := io.WriteString(conn, line); err != nil {
			return fmt.Errorf("send line %d: %w", i, err)
		}
		answer, err := answers.ReadString('\n')
		if err != nil {
			return fmt.Errorf("receive line %d: %w", i, err)
		}
		if answer != strings.ToUpper(line) {
			return fmt.Errorf("line %d came back as %q", i, answer)
		}
		if i%100 == 0 {
			runtime.GC()
		}
	}
	return nil
}

// run starts the client, then runs the application on this thread, which is locked to the
// goroutine from then on. It returns the client's error, or an error if the application fails.
func run() error {
	// Plain numbers: an os.File would close Python's end again, after Python has closed it.
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	announced := os.NewFile(uintptr(ends[0]), "announced")
	talked := make(chan error, 1)
	go func() {
		defer announced.Close()
		port, err := io.ReadAll(announced)
		if err == nil {
			err = talk(string(port))
		}
		talked <- err
	}()

	runtime.LockOSThread()
	python.Py_Initialize()
	if python.PyRun_SimpleString(fmt.Sprintf(application, ends[1])) != 0 {
		// Python has printed the traceback.
		return errors.New("the application failed")
	}
	python.Py_Finalize()
	return <-talked
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "embed:", err)
		os.Exit(1)
	}
	fmt.Printf("Go: %d lines came back\n", lines)
}
