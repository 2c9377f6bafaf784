//go:build linux

package simulated

import "math/rand/v2"

// random makes all decisions of a kernel: from a seed or, where somebody else decides, from digits
// that are given ahead. Of digits zero is the least: no fault, the shortest time. So is one that was
// not given, for nobody can be asked in the middle of a call.
type random struct {
	source *rand.PCG // nil: digits decide
	digits []byte    // each below base
	missed int       // how many were not given
}

const (
	base = 1 << 7
	// Of larger numbers, which are times and ports, one digit is exact enough.
	exact = base * base
)

func newRandom(seed uint64) random { return random{source: rand.NewPCG(seed, 0x676f6c6f6f70)} }

// chance tells whether something of this probability happens. What never happens and what always
// does takes nothing from the generator.
func (r *random) chance(p float64) bool {
	switch {
	case p <= 0:
		return false
	case p >= 1:
		return true
	case r.source != nil:
		return float64(r.source.Uint64()>>11)/(1<<53) < p
	}
	// It happens from 1-p on. One digit most often tells whether it is above.
	from := 1 - p
	for range 4 {
		from *= base
		limit := int(from)
		if d := r.digit(); d != limit {
			return d > limit
		}
		if from -= float64(limit); from == 0 {
			return true
		}
	}
	return false
}

// between is a number from least to most, both included.
func (r *random) between(least, most int64) int64 {
	if most <= least {
		return least
	}
	span := uint64(most-least) + 1
	switch {
	case r.source != nil:
		return least + int64(r.source.Uint64()%span)
	case span > exact:
		return least + int64((span-1)*uint64(r.digit())/(base-1))
	case span > base:
		return least + int64(uint64(r.digit()*base+r.digit())*span/exact)
	}
	return least + int64(uint64(r.digit())*span/base)
}

func (r *random) digit() int {
	if len(r.digits) == 0 {
		r.missed++
		return 0
	}
	d := r.digits[0]
	r.digits = r.digits[1:]
	return int(d % base)
}

// Decide has digits make the decisions from now on, behind those of the calls before, of which it
// tells how many are left and how many were wanted that were not given.
func (k *Kernel) Decide(digits []byte) (left, missed int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &k.random
	left, missed = len(r.digits), r.missed
	r.source, r.missed = nil, 0
	r.digits = append(r.digits[:left:left], digits...)
	return left, missed
}

// Reseed has a seed make the decisions from now on.
func (k *Kernel) Reseed(seed uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.random = newRandom(seed)
}
