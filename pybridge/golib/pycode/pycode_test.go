package pycode

import "testing"

// Reference counts of Python 3.11 to 3.15, of immortal objects and with the flags of 3.14; then pointers
// that pymalloc stores in freed objects.
func TestFreedObjectsAreKnown(t *testing.T) {
	for _, count := range []uint64{1, 70, 0xffffffff, 0x3fffffff, 3 << 30, 0x0080_0000_0000_0001} {
		if isFreed(count) {
			t.Errorf("%#x is a count", count)
		}
	}
	for _, link := range []uint64{0, 0x7f35_d6cd_6780, 0x55d1_0000_1230} {
		if !isFreed(link) {
			t.Errorf("%#x is none", link)
		}
	}
}
