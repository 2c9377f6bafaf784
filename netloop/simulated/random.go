//go:build linux

package simulated

import "math/rand/v2"

// random makes all decisions of a kernel.
type random struct{ source *rand.PCG }

func newRandom(seed uint64) random { return random{rand.NewPCG(seed, 0x676f6c6f6f70)} }

// chance tells whether something of this probability happens. What never happens and what always
// does take nothing from the generator.
func (r random) chance(p float64) bool {
	switch {
	case p <= 0:
		return false
	case p >= 1:
		return true
	}
	return float64(r.source.Uint64()>>11)/(1<<53) < p
}

// between is a number from least to most, both included.
func (r random) between(least, most int64) int64 {
	if most <= least {
		return least
	}
	return least + int64(r.source.Uint64()%uint64(most-least+1))
}
