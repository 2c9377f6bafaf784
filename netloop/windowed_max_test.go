package netloop

import "testing"

func TestWindowedMaxCoversOneToTwoWindows(t *testing.T) {
	var w windowedMax
	start := int64(1) << 50
	for _, step := range []struct {
		after       int64
		value, want uint64
	}{
		{0, 5, 5},
		{windowLength - 1, 3, 5},
		{windowLength, 2, 5},       // the previous window counts
		{2*windowLength - 1, 1, 5}, // until the end of the current window
		{2 * windowLength, 1, 2},   // the second window: 5 is too old
		{2*windowLength + 1, 9, 9},
		{3 * windowLength, 0, 9},
		{5 * windowLength, 4, 4}, // no value in a whole window
		{5*windowLength + 1, 0, 4},
	} {
		if got := w.add(start+step.after, step.value); got != step.want {
			t.Errorf("%d ns later the most is %d, want %d", step.after, got, step.want)
		}
	}
}

func TestTurnResetsTheMaximum(t *testing.T) {
	l := defaultLoop(t)
	l.arm(1, 1<<62)
	l.sh.MaxReady, l.sh.MaxTimers = 7, 3
	l.turn(0)
	if l.sh.Metrics.ReadyMax != 7 || l.sh.Metrics.TimersMax != 3 {
		t.Errorf("the most are %d and %d", l.sh.Metrics.ReadyMax, l.sh.Metrics.TimersMax)
	}
	if l.sh.MaxReady != 0 || l.sh.MaxTimers != 1 {
		t.Errorf("%d and %d at the start", l.sh.MaxReady, l.sh.MaxTimers)
	}
}
