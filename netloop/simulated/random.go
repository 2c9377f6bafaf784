//go:build linux

package simulated

import "math/rand/v2"

// random makes all decisions of a kernel: from a seed or, for another decider, from digits that are given
// before. Digit 0 is the simplest decision: no fault, the shortest time. Missing digits are 0 too, because
// the decider can't be called in the middle of a call.
type random struct {
	source  *rand.PCG // nil: the digits decide
	digits  []byte    // each is less than base
	missing int       // number of missing digits
}

const (
	base = 1 << 7
	// Larger numbers are times and ports, for which one digit is exact enough.
	exact = base * base
)

// newRandom returns a decider that decides from a seed.
func newRandom(seed uint64) random { return random{source: rand.NewPCG(seed, 0x676f6c6f6f70)} }

// chance decides whether an event of this probability happens. Probabilities 0 and 1 consume no decision.
func (r *random) chance(p float64) bool {
	switch {
	case p <= 0:
		return false
	case p >= 1:
		return true
	case r.source != nil:
		return float64(r.source.Uint64()>>11)/(1<<53) < p
	}
	// The event happens from 1-p on. Usually one digit decides.
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

// between returns a number from low to high, both inclusive. If high is not larger than low, it returns
// low and consumes no decision.
func (r *random) between(low, high int64) int64 {
	if high <= low {
		return low
	}
	span := uint64(high-low) + 1
	switch {
	case r.source != nil:
		return low + int64(r.source.Uint64()%span)
	case span > exact:
		return low + int64((span-1)*uint64(r.digit())/(base-1))
	case span > base:
		return low + int64(uint64(r.digit()*base+r.digit())*span/exact)
	}
	return low + int64(uint64(r.digit())*span/base)
}

// digit takes the next digit, 0 to base-1. If there is none, it counts it as missing and returns 0.
func (r *random) digit() int {
	if len(r.digits) == 0 {
		r.missing++
		return 0
	}
	d := r.digits[0]
	r.digits = r.digits[1:]
	return int(d % base)
}

// Decide appends digits for the next decisions and ends decisions from a seed. It returns the number of
// digits left from earlier calls, and the number of digits that were missing since the last call.
func (k *Kernel) Decide(digits []byte) (left, missing int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &k.random
	left, missing = len(r.digits), r.missing
	r.source, r.missing = nil, 0
	r.digits = append(r.digits[:left:left], digits...)
	return left, missing
}

// Reseed makes a seed decide from now on.
func (k *Kernel) Reseed(seed uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.random = newRandom(seed)
}
