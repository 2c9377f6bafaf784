package main

/*
#include "abi.h"
*/
import "C"

import (
	"unsafe"

	"github.com/goloop/goloop/netloop"
	"github.com/goloop/goloop/timers"
)

// The mirror in netloop must have C's layout. An array of one length cannot be
// assigned to an array of another, so a difference ends the compilation here.
var (
	_ [C.sizeof_gl_submission]byte = [unsafe.Sizeof(netloop.Submission{})]byte{}
	_ [C.sizeof_gl_completion]byte = [unsafe.Sizeof(netloop.Completion{})]byte{}
	_ [C.sizeof_gl_endpoints]byte  = [unsafe.Sizeof(netloop.Endpoints{})]byte{}
	_ [C.sizeof_gl_packet]byte     = [unsafe.Sizeof(netloop.Packet{})]byte{}
	_ [C.sizeof_gl_shared]byte     = [unsafe.Sizeof(netloop.Shared{})]byte{}
	_ [C.sizeof_gl_answer]byte     = [unsafe.Sizeof(netloop.Answer{})]byte{}

	_ [unsafe.Offsetof(C.gl_submission{}.ptr)]byte  = [unsafe.Offsetof(netloop.Submission{}.Ptr)]byte{}
	_ [unsafe.Offsetof(C.gl_submission{}.arg)]byte  = [unsafe.Offsetof(netloop.Submission{}.Arg)]byte{}
	_ [unsafe.Offsetof(C.gl_completion{}.res)]byte  = [unsafe.Offsetof(netloop.Completion{}.Res)]byte{}
	_ [unsafe.Offsetof(C.gl_completion{}.ptr)]byte  = [unsafe.Offsetof(netloop.Completion{}.Ptr)]byte{}
	_ [unsafe.Offsetof(C.gl_completion{}.arg)]byte  = [unsafe.Offsetof(netloop.Completion{}.Arg)]byte{}
	_ [unsafe.Offsetof(C.gl_endpoints{}.local)]byte = [unsafe.Offsetof(netloop.Endpoints{}.Local)]byte{}

	_ [unsafe.Offsetof(C.gl_shared{}.arena)]byte         = [unsafe.Offsetof(netloop.Shared{}.Arena)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.cmp_cap)]byte       = [unsafe.Offsetof(netloop.Shared{}.CmpCap)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.arena_cap)]byte     = [unsafe.Offsetof(netloop.Shared{}.ArenaCap)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.now)]byte           = [unsafe.Offsetof(netloop.Shared{}.Now)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.next_deadline)]byte = [unsafe.Offsetof(netloop.Shared{}.NextDeadline)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.more)]byte          = [unsafe.Offsetof(netloop.Shared{}.More)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.wake_pending)]byte  = [unsafe.Offsetof(netloop.Shared{}.WakePending)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.wake_fd)]byte       = [unsafe.Offsetof(netloop.Shared{}.WakeFD)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.flags)]byte         = [unsafe.Offsetof(netloop.Shared{}.Flags)]byte{}
	_ [C.GL_NO_TIMER - timers.MaxID]byte                 = [1]byte{} // C gives out all below
	_ [C.GL_NO_RING]byte                                 = [netloop.NoRing]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.turns)]byte         = [unsafe.Offsetof(netloop.Shared{}.Turns)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.wakeups)]byte       = [unsafe.Offsetof(netloop.Shared{}.Wakeups)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.large)]byte         = [unsafe.Offsetof(netloop.Shared{}.Large)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.large_size)]byte    = [unsafe.Offsetof(netloop.Shared{}.LargeSize)]byte{}
	_ [unsafe.Offsetof(C.gl_shared{}.answers)]byte       = [unsafe.Offsetof(netloop.Shared{}.Answers)]byte{}
	_ [unsafe.Offsetof(C.gl_answer{}.list)]byte          = [unsafe.Offsetof(netloop.Answer{}.List)]byte{}
	_ [unsafe.Offsetof(C.gl_answer{}.error)]byte         = [unsafe.Offsetof(netloop.Answer{}.Error)]byte{}
	_ [unsafe.Offsetof(C.gl_answer{}.request)]byte       = [unsafe.Offsetof(netloop.Answer{}.Request)]byte{}
	_ [C.GL_LISTEN_NODELAY]byte                          = [netloop.ListenNoDelay]byte{}
	_ [C.GL_LARGE_MAX]byte                               = [netloop.LargeMax]byte{}
	_ [C.GL_PACKET_MAX]byte                              = [netloop.PacketMax]byte{}
	_ [C.GL_ARENA_SLACK]byte                             = [netloop.ArenaSlack]byte{}
)
