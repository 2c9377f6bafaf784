//go:build linux

package main

import (
	"fmt"
	"net"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"
)

// echoServer answers every read with the bytes of that read.
type echoServer struct {
	gnet.BuiltinEventEngine
	port int
}

// OnBoot prints the port once the server listens.
func (s *echoServer) OnBoot(gnet.Engine) gnet.Action {
	fmt.Printf("port %d\n", s.port)
	return gnet.None
}

// OnTraffic writes the received bytes back to the connection.
func (s *echoServer) OnTraffic(c gnet.Conn) gnet.Action {
	data, err := c.Next(-1)
	if err != nil {
		return gnet.Close
	}
	if _, err := c.Write(data); err != nil {
		return gnet.Close
	}
	return gnet.None
}

// serve runs the echo server until the process is killed.
func serve() error {
	port, err := freePort()
	if err != nil {
		return err
	}
	return gnet.Run(
		&echoServer{port: port},
		fmt.Sprintf("tcp://127.0.0.1:%d", port),
		gnet.WithNumEventLoop(1),
		gnet.WithReuseAddr(true),
		gnet.WithReadBufferCap(readBuffer),
		gnet.WithTCPNoDelay(gnet.TCPNoDelay),
		gnet.WithLogLevel(logging.ErrorLevel),
	)
}

// readBuffer is the receive buffer of each event loop in bytes, as large as the
// C ceiling's, so that the two make the same system calls.
const readBuffer = 256 * 1024

// freePort gets a free port from the kernel. gnet does not report the port that it got for
// port 0, so the port is chosen beforehand. If another process takes it in between, the
// start fails.
func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("listen: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	if err := listener.Close(); err != nil {
		return 0, fmt.Errorf("close listener: %w", err)
	}
	return port, nil
}
