//go:build libkqueue

package netloop

import (
	"flag"
	"os"
	"strings"
	"testing"
)

// libkqueue closes the descriptors of a queue when the next one is made.
const closesLate = true

// libkqueueDiffers names the tests of what libkqueue does otherwise than kqueue(2).
var libkqueueDiffers = [][]string{
	{ // A registration outlives its descriptor, and is then another one's.
		"TestAWatchOfANumberThatWasUsedAgain",
		"TestAListenerAndADatagramSocketWhoseOwnersHaveGone",
		"TestAStreamWhoseOwnerHasGoneLeavesTheNextOneOfItsNumberRegistered",
		"TestAWatchThatOutlivesItsDescriptorLeavesTheRingAlone",
		"TestCancelledOnceIsNotReported",
		"TestWatchSetRegistersANumberAfresh",
		"TestForgottenWatchLeavesItsSuccessorAlone",
	},
	{ // EV_ADD of what is registered with EV_CLEAR does not tell what is ready already.
		"TestNobodyWaitsOnTrustWhileTheReactorBlocks",
		"TestNobodyWaitsOnTrustForManyTurns",
		"TestAWaitThatCannotBeToldIsReported",
	},
	{ // Regular files and closed sockets are taken.
		"TestOpenRefusesWhatCannotBePolled",
		"TestWatchRefusesWhatCannotBePolled",
		"TestDatagramOpenReportsWhatFailed",
	},
	{ // An error that a socket has is no event.
		"TestDatagramToNobody",
		"TestEndsAndErrorsInABatch",
	},
	{ // The calls by way of cgo allocate.
		"TestSteadyDatagramsDoNotAllocate",
		"TestBatchesDoNotAllocate",
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
