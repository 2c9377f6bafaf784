//go:build linux

package simulated

import (
	"math"
	"math/rand/v2"
	"testing"
)

// given returns a decider that decides from these digits.
func given(digits ...byte) *random { return &random{digits: digits} }

func TestZeroIsTheLeast(t *testing.T) {
	for _, r := range []*random{given(0, 0, 0, 0), given()} {
		if r.chance(0.999) || r.chance(1-1e-12) {
			t.Fatal("it happens")
		}
		if n := r.between(7, 1e9); n != 7 {
			t.Fatal(n)
		}
	}
	r := given(1)
	for range 3 {
		_ = r.chance(0.5)
	}
	if r.missing != 2 {
		t.Fatal(r.missing)
	}
}

func TestWhatIsSureNeedsNoDigit(t *testing.T) {
	r := given()
	if r.chance(0) || !r.chance(1) || r.between(5, 5) != 5 || r.missing != 0 {
		t.Fatal(r.missing)
	}
}

func TestAChanceGoesByAsManyDigitsAsItNeeds(t *testing.T) {
	for _, c := range []struct {
		p      float64
		digits []byte
		want   bool
		left   int
	}{
		{0.5, []byte{63, 9}, false, 1},
		{0.5, []byte{64, 9}, true, 1},
		{1.0 / 256, []byte{126, 9}, false, 1},
		{1.0 / 256, []byte{127, 63, 9}, false, 1},
		{1.0 / 256, []byte{127, 64, 9}, true, 1},
		{1e-5, []byte{127, 127, 127, 9}, true, 1},
		{1e-5, []byte{127, 126, 9}, false, 1},
	} {
		r := given(c.digits...)
		if got := r.chance(c.p); got != c.want || len(r.digits) != c.left {
			t.Errorf("%v of %v: %v, %d left", c.p, c.digits, got, len(r.digits))
		}
	}
	source, happened := rand.NewPCG(1, 2), 0
	for range 100_000 {
		r := given(byte(source.Uint64()%base), byte(source.Uint64()%base), byte(source.Uint64()%base))
		if r.chance(0.003) {
			happened++
		}
	}
	if math.Abs(float64(happened)-300) > 60 {
		t.Error(happened)
	}
}

func TestNumbersOfDigits(t *testing.T) {
	for span := int64(2); span <= base; span++ { // a digit gives all of a small range
		seen := map[int64]bool{}
		for d := range base {
			seen[given(byte(d)).between(10, 9+span)] = true
		}
		if len(seen) != int(span) || !seen[10] || !seen[9+span] {
			t.Fatal(span, len(seen))
		}
	}
	for _, c := range []struct {
		low, high int64
		digits    []byte
		want      int64
	}{
		{1, 1000, []byte{127, 127}, 1000},
		{1, 1000, []byte{64, 0}, 501},
		{1, 1000, []byte{0, 17}, 2},
		{50_000, 5_000_000, []byte{127}, 5_000_000},
		{50_000, 5_000_000, []byte{1}, 88_976},
	} {
		r := given(c.digits...)
		if got := r.between(c.low, c.high); got != c.want || len(r.digits) != 0 || r.missing != 0 {
			t.Errorf("%v: %d", c, got)
		}
	}
}

func TestDigitsComeBehindThoseThatAreLeft(t *testing.T) {
	k := New(Options{Seed: 5})
	if left, missing := k.Decide([]byte{1, 2, 3}); left != 0 || missing != 0 {
		t.Fatal(left, missing)
	}
	got := k.random.between(0, base-1)
	if left, _ := k.Decide([]byte{4}); left != 2 || got != 1 {
		t.Fatal(left, got)
	}
	for want := int64(2); want < 5; want++ {
		if got := k.random.between(0, base-1); got != want {
			t.Fatal(got)
		}
	}
	_ = k.random.between(0, 1)
	if left, missing := k.Decide(nil); left != 0 || missing != 1 {
		t.Fatal(left, missing)
	}
	if _, missing := k.Decide(nil); missing != 0 {
		t.Fatal("told twice")
	}
	k.Reseed(5)
	if a, b := k.random.source.Uint64(), newRandom(5).source.Uint64(); a != b {
		t.Fatal(a, b)
	}
}
