package main

/*
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"github.com/goloop/goloop/netloop"
	"github.com/goloop/goloop/timers"
	"github.com/goloop/goloop/transports"
)

// The mirror in netloop must have C's layout. An array of one length cannot be
// assigned to an array of another, so a difference ends the compilation here.
var (
	_ [C.sizeof_gl_submission]byte = [unsafe.Sizeof(netloop.Submission{})]byte{}
	_ [C.sizeof_gl_completion]byte = [unsafe.Sizeof(netloop.Completion{})]byte{}
	_ [C.sizeof_gl_endpoints]byte  = [unsafe.Sizeof(netloop.Endpoints{})]byte{}
	_ [C.sizeof_gl_packet]byte     = [unsafe.Sizeof(netloop.Packet{})]byte{}
	_ [C.sizeof_gl_histogram]byte  = [unsafe.Sizeof(netloop.Histogram{})]byte{}
	_ [C.sizeof_gl_metrics]byte    = [unsafe.Sizeof(netloop.Metrics{})]byte{}
	_ [C.sizeof_gl_shared]byte     = [unsafe.Sizeof(netloop.Shared{})]byte{}
	_ [C.sizeof_gl_stream_io]byte  = [unsafe.Sizeof(netloop.StreamIO{})]byte{}
	_ [C.sizeof_gl_vector]byte     = [unsafe.Sizeof(transports.Vector{})]byte{}

	_ [unsafe.Offsetof(C.gl_submission{}.gen)]byte  = [unsafe.Offsetof(netloop.Submission{}.Gen)]byte{}
	_ [unsafe.Offsetof(C.gl_submission{}.arg)]byte  = [unsafe.Offsetof(netloop.Submission{}.Arg)]byte{}
	_ [unsafe.Offsetof(C.gl_completion{}.res)]byte  = [unsafe.Offsetof(netloop.Completion{}.Res)]byte{}
	_ [unsafe.Offsetof(C.gl_completion{}.ptr)]byte  = [unsafe.Offsetof(netloop.Completion{}.Ptr)]byte{}
	_ [unsafe.Offsetof(C.gl_completion{}.arg)]byte  = [unsafe.Offsetof(netloop.Completion{}.Arg)]byte{}
	_ [unsafe.Offsetof(C.gl_endpoints{}.local)]byte = [unsafe.Offsetof(netloop.Endpoints{}.Local)]byte{}

	_ [unsafe.Offsetof(C.gl_stream_io{}.iov)]byte      = [unsafe.Offsetof(netloop.StreamIO{}.IOV)]byte{}
	_ [unsafe.Offsetof(C.gl_stream_io{}.owner)]byte    = [unsafe.Offsetof(netloop.StreamIO{}.Owner)]byte{}
	_ [unsafe.Offsetof(C.gl_stream_io{}.appended)]byte = [unsafe.Offsetof(netloop.StreamIO{}.Appended)]byte{}
	_ [unsafe.Offsetof(C.gl_stream_io{}.cap)]byte      = [unsafe.Offsetof(netloop.StreamIO{}.Cap)]byte{}
	_ [unsafe.Offsetof(C.gl_stream_io{}.tail)]byte     = [unsafe.Offsetof(netloop.StreamIO{}.Tail)]byte{}
	_ [unsafe.Offsetof(C.gl_stream_io{}.want)]byte     = [unsafe.Offsetof(netloop.StreamIO{}.Want)]byte{}
	_ [unsafe.Offsetof(C.gl_stream_io{}.listed)]byte   = [unsafe.Offsetof(netloop.StreamIO{}.Listed)]byte{}
	_ [unsafe.Offsetof(C.gl_stream_io{}.head)]byte     = [unsafe.Offsetof(netloop.StreamIO{}.Head)]byte{}
	_ [unsafe.Offsetof(C.gl_stream_io{}.state)]byte    = [unsafe.Offsetof(netloop.StreamIO{}.State)]byte{}
	_ [unsafe.Offsetof(C.gl_stream_io{}.sent)]byte     = [unsafe.Offsetof(netloop.StreamIO{}.Sent)]byte{}
	_ [unsafe.Offsetof(C.gl_vector{}.len)]byte         = [unsafe.Offsetof(transports.Vector{}.Len)]byte{}

	_ [unsafe.Offsetof(C.gl_shared{}.arena)]byte                 = [unsafe.Offsetof(netloop.Shared{}.Arena)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.cmp_cap)]byte               = [unsafe.Offsetof(netloop.Shared{}.CmpCap)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.arena_cap)]byte             = [unsafe.Offsetof(netloop.Shared{}.ArenaCap)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.now)]byte                   = [unsafe.Offsetof(netloop.Shared{}.Now)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.next_deadline)]byte         = [unsafe.Offsetof(netloop.Shared{}.NextDeadline)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.more)]byte                  = [unsafe.Offsetof(netloop.Shared{}.More)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.wake_pending)]byte          = [unsafe.Offsetof(netloop.Shared{}.WakePending)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.wake_fd)]byte               = [unsafe.Offsetof(netloop.Shared{}.WakeFD)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.flags)]byte                 = [unsafe.Offsetof(netloop.Shared{}.Flags)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.wake_token)]byte            = [unsafe.Offsetof(netloop.Shared{}.WakeToken)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.poll_fd)]byte               = [unsafe.Offsetof(netloop.Shared{}.PollFD)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.wakeups)]byte               = [unsafe.Offsetof(netloop.Shared{}.Wakeups)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.accepting)]byte             = [unsafe.Offsetof(netloop.Shared{}.Accepting)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.large)]byte                 = [unsafe.Offsetof(netloop.Shared{}.Large)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.large_size)]byte            = [unsafe.Offsetof(netloop.Shared{}.LargeSize)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.holds)]byte                 = [unsafe.Offsetof(netloop.Shared{}.Holds)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.unsent)]byte                = [unsafe.Offsetof(netloop.Shared{}.Unsent)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.metrics)]byte               = [unsafe.Offsetof(netloop.Shared{}.Metrics)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.asker)]byte                 = [unsafe.Offsetof(netloop.Shared{}.Asker)]byte{}
	_ [unsafe.Offsetof(C.gl_histogram{}.most)]byte               = [unsafe.Offsetof(netloop.Histogram{}.Most)]byte{}
	_ [unsafe.Offsetof(C.gl_histogram{}.bucket)]byte             = [unsafe.Offsetof(netloop.Histogram{}.Bucket)]byte{}
	_ [unsafe.Offsetof(C.gl_metrics{}.poll_time)]byte            = [unsafe.Offsetof(netloop.Metrics{}.PollTime)]byte{}
	_ [unsafe.Offsetof(C.gl_metrics{}.dns_time)]byte             = [unsafe.Offsetof(netloop.Metrics{}.DNSTime)]byte{}
	_ [unsafe.Offsetof(C.gl_metrics{}.bytes_sent)]byte           = [unsafe.Offsetof(netloop.Metrics{}.BytesSent)]byte{}
	_ [unsafe.Offsetof(C.gl_metrics{}.writes)]byte               = [unsafe.Offsetof(netloop.Metrics{}.Writes)]byte{}
	_ [unsafe.Offsetof(C.gl_metrics{}.late_writes)]byte          = [unsafe.Offsetof(netloop.Metrics{}.LateWrites)]byte{}
	_ [unsafe.Offsetof(C.gl_metrics{}.blocked_spells)]byte       = [unsafe.Offsetof(netloop.Metrics{}.BlockedSpells)]byte{}
	_ [unsafe.Offsetof(C.gl_metrics{}.ready_wait)]byte           = [unsafe.Offsetof(netloop.Metrics{}.ReadyWait)]byte{}
	_ [unsafe.Offsetof(C.gl_metrics{}.connections_accepted)]byte = [unsafe.Offsetof(netloop.Metrics{}.ConnectionsAccepted)]byte{}
)

// So are the constants compared.
var (
	_ [C.GL_SUB_NOP]byte          = [netloop.SubNop]byte{}
	_ [C.GL_SUB_TIMER_ARM]byte    = [netloop.SubTimerArm]byte{}
	_ [C.GL_SUB_TIMER_CANCEL]byte = [netloop.SubTimerCancel]byte{}
	_ [C.GL_SUB_STREAM]byte       = [netloop.SubStream]byte{}
	_ [C.GL_SUB_WATCH_WAIT]byte   = [netloop.SubWatchWait]byte{}

	_ [C.GL_CMP_NONE]byte           = [netloop.CmpNone]byte{}
	_ [C.GL_CMP_DATA]byte           = [netloop.CmpData]byte{}
	_ [C.GL_CMP_EOF]byte            = [netloop.CmpEOF]byte{}
	_ [C.GL_CMP_READ_ERROR]byte     = [netloop.CmpReadError]byte{}
	_ [C.GL_CMP_WROTE]byte          = [netloop.CmpWrote]byte{}
	_ [C.GL_CMP_WRITE_ERROR]byte    = [netloop.CmpWriteError]byte{}
	_ [C.GL_CMP_ACCEPT]byte         = [netloop.CmpAccept]byte{}
	_ [C.GL_CMP_ACCEPT_ERROR]byte   = [netloop.CmpAcceptError]byte{}
	_ [C.GL_CMP_READY]byte          = [netloop.CmpReady]byte{}
	_ [C.GL_CMP_TIMER]byte          = [netloop.CmpTimer]byte{}
	_ [C.GL_CMP_DATAGRAM]byte       = [netloop.CmpDatagram]byte{}
	_ [C.GL_CMP_DATAGRAM_ERROR]byte = [netloop.CmpDatagramError]byte{}

	_ [C.GL_READABLE]byte        = [transports.Readable]byte{}
	_ [C.GL_WRITABLE]byte        = [transports.Writable]byte{}
	_ [C.GL_WANT_READ]byte       = [transports.WantRead]byte{}
	_ [C.GL_WANT_SHUT]byte       = [transports.WantShut]byte{}
	_ [C.GL_WANT_DIRECT]byte     = [transports.WantDirect]byte{}
	_ [C.GL_WANT_REPORT]byte     = [transports.WantReport]byte{}
	_ [C.GL_STATE_BLOCKED]byte   = [transports.StateBlocked]byte{}
	_ [C.GL_STATE_READ_END]byte  = [transports.StateReadEnd]byte{}
	_ [C.GL_STATE_SHUT]byte      = [transports.StateShut]byte{}
	_ [C.GL_STATE_DEAD]byte      = [transports.StateDead]byte{}
	_ [C.GL_STATE_PIPE]byte      = [transports.StatePipe]byte{}
	_ [C.GL_STATE_WATCH_END]byte = [transports.StateWatchEnd]byte{}

	_ [C.GL_OPEN_WATCH_END]byte                       = [netloop.OpenWatchEnd]byte{}
	_ [C.GL_LISTEN_NODELAY]byte                       = [netloop.ListenNoDelay]byte{}
	_ [C.GL_CLOSE_FD]byte                             = [netloop.CloseFD]byte{}
	_ [C.GL_NO_RING]byte                              = [netloop.NoRing]byte{}
	_ [C.GL_LOOK]byte                                 = [netloop.Look]byte{}
	_ [C.GL_BUCKETS]byte                              = [netloop.Buckets]byte{}
	_ [C.GL_LARGE_MAX]byte                            = [netloop.LargeMax]byte{}
	_ [C.GL_PACKET_MAX]byte                           = [netloop.PacketMax]byte{}
	_ [C.GL_ARENA_SLACK]byte                          = [netloop.ArenaSlack]byte{}
	_ [C.GL_SOCKADDR_MAX]byte                         = [netloop.SockaddrMax]byte{}
	_ [C.GL_DEADLINE_NONE - netloop.DeadlineNone]byte = [0]byte{}
	_ [netloop.DeadlineNone - C.GL_DEADLINE_NONE]byte = [0]byte{}
	_ [C.GL_NO_TIMER - timers.MaxID]byte              = [1]byte{} // C gives out all below
)
