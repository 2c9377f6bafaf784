//go:build libkqueue

package netloop

import (
	"flag"
	"os"
	"strings"
	"testing"
)

// closesDelayed is true because libkqueue closes the descriptors of a queue when the next queue
// is opened.
const closesDelayed = true

// libkqueueDiffers lists the tests of behaviour in which libkqueue differs from kqueue(2).
var libkqueueDiffers = [][]string{
	{ // A registration outlives its descriptor and then belongs to the next file of the number.
		"TestWatchOnTheFDOfAClosedStream",
		"TestListenerAndDatagramSocketWithoutLease",
		"TestStreamWithoutLeaseLeavesTheNextStreamOfItsFDRegistered",
		"TestCancelledOnceIsNotReported",
		"TestWatchSetRegistersAReusedFD",
		"TestDeregisteredWatchLeavesTheNextStreamOfItsFDRegistered",
	},
	{ // EV_ADD of a filter that is registered with EV_CLEAR does not report present readiness.
		"TestAssumedWatchesAreArmedBeforeTheReactorBlocks",
		"TestAssumedWatchesAreArmedAfterManyTurns",
		"TestWatchThatCannotBeArmedIsReportedAsReady",
	},
	{ // Regular files and closed sockets are accepted.
		"TestStreamOpenRefusesFilesThatCannotBePolled",
		"TestWatchOpenRefusesFilesThatCannotBePolled",
		"TestDatagramOpenReturnsErrors",
	},
	{ // A pending error of a socket does not cause an event.
		"TestDatagramToAClosedPortReportsAnError",
		"TestEndsAndErrorsOfManyStreams",
	},
	{ // Calls through cgo allocate.
		"TestSteadyDatagramsDoNotAllocate",
		"TestSteadyTurnsDoNotAllocate",
	},
}

func TestMain(m *testing.M) {
	flag.Parse()
	var names []string
	for _, group := range libkqueueDiffers {
		names = append(names, group...)
	}
	if err := flag.Set("test.skip", "^("+strings.Join(names, "|")+")$"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
