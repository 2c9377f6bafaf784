package netloop

import "testing"

func TestTheMostIsOfTheLastOneToTwoWindows(t *testing.T) {
	var w recent
	start := int64(1) << 50
	for _, step := range []struct {
		after       int64
		value, want uint64
	}{
		{0, 5, 5},
		{recentTime - 1, 3, 5},
		{recentTime, 2, 5},       // the window before counts
		{2*recentTime - 1, 1, 5}, // to the end of this one
		{2 * recentTime, 1, 2},   // of the second window: 5 is older than one
		{2*recentTime + 1, 9, 9},
		{3 * recentTime, 0, 9},
		{5 * recentTime, 4, 4}, // nothing was noted in a whole window
		{5*recentTime + 1, 0, 4},
	} {
		if got := w.most(start+step.after, step.value); got != step.want {
			t.Errorf("%d ns later the most is %d, want %d", step.after, got, step.want)
		}
	}
}

func TestATurnTakesTheMostBack(t *testing.T) {
	l := usualLoop(t)
	l.arm(1, 1<<62)
	l.sh.ReadyMost, l.sh.TimersMost = 7, 3
	l.turn(0)
	if l.sh.Metrics.ReadyMax != 7 || l.sh.Metrics.TimersMax != 3 {
		t.Errorf("the most are %d and %d", l.sh.Metrics.ReadyMax, l.sh.Metrics.TimersMax)
	}
	if l.sh.ReadyMost != 0 || l.sh.TimersMost != 1 {
		t.Errorf("%d and %d are left to begin with", l.sh.ReadyMost, l.sh.TimersMost)
	}
}
