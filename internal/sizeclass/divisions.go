package sizeclass

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// Divisions say how many sizes there are for blocks from a power of two to the
// next, by size: element i is for sizes from 1 MiB << i, the first also for
// what is smaller, the last for what is larger. Each is a power of two; 0 and
// 1 leave sizes alone. It is PyTorch's roundup_power2_divisions.
type Divisions [16]int

// SameDivisions returns n for all sizes.
func SameDivisions(n int) (d Divisions) {
	for i := range d {
		d[i] = n
	}
	return d
}

// firstDivision is log2 of the size that the second element is above.
const firstDivision = 20

// divisionOf returns the element that is for a size in bytes.
func divisionOf(size int64) int {
	return min(max(bits.Len64(uint64(size))-1-firstDivision, 0), len(Divisions{})-1)
}

// ParseDivisions reads what PyTorch takes: one power of two for all sizes, or
// [256:1,512:2,1024:4,>:8], where the first number of a pair is a size in MiB
// and the second is for sizes from there to its double; that of the first pair
// also for what is smaller, that of ">" for what is larger than in the last.
// Sizes that are not listed are left alone, and all are with none. The error says what
// is wrong with the text, which it does not repeat.
func ParseDivisions(s string) (d Divisions, err error) {
	if s == "none" {
		return d, nil
	}
	list, isList := strings.CutPrefix(strings.ReplaceAll(s, " ", ""), "[")
	if !isList {
		n, err := strconv.Atoi(list)
		if d = SameDivisions(n); err != nil || n == 0 || !d.Valid() {
			return Divisions{}, errors.New("must be a power of two, or a list such as [256:1,512:2,1024:4,>:8]")
		}
		return d, nil
	}
	list, closed := strings.CutSuffix(list, "]")
	if !closed {
		return Divisions{}, errors.New("the list must end with ]")
	}
	last := -1
	for _, pair := range strings.Split(list, ",") {
		i, n, reason := parseDivision(pair)
		if reason != "" {
			return Divisions{}, errors.New(reason)
		}
		if i <= last {
			return Divisions{}, fmt.Errorf("the sizes must ascend, and %q does not", pair)
		}
		from := i
		if last < 0 || strings.HasPrefix(pair, ">") {
			from = last + 1
		}
		for ; from <= i; from++ {
			d[from] = n
		}
		last = i
	}
	return d, nil
}

// parseDivision reads SIZE:DIVISIONS and returns the element that it is for, or
// what is wrong with it. ">" is for the last one.
func parseDivision(pair string) (i, n int, reason string) {
	size, count, _ := strings.Cut(pair, ":")
	n, err := strconv.Atoi(count)
	if err != nil || n <= 0 || n > maxDivisions || n&(n-1) != 0 {
		return 0, 0, fmt.Sprintf("%q must be SIZE:DIVISIONS, with a power of two behind the colon", pair)
	}
	if size == ">" {
		return len(Divisions{}) - 1, n, ""
	}
	mib, err := strconv.ParseInt(size, 10, 64)
	if err != nil || mib <= 0 || mib&(mib-1) != 0 || bits.Len64(uint64(mib)) > len(Divisions{}) {
		return 0, 0, fmt.Sprintf("the size in %q must be a power of two from 1 to 32768, in MiB, or >", pair)
	}
	return bits.Len64(uint64(mib)) - 1, n, ""
}

// String returns what ParseDivisions reads. Divisions that round the same print the
// same, but for those that are all 0, which are "none", and all 1.
func (d Divisions) String() string {
	if d == (Divisions{}) {
		return "none"
	}
	var pairs []string
	for i, n := range d {
		if n == 0 {
			d[i] = 1
		}
		pairs = append(pairs, fmt.Sprintf("%d:%d", 1<<i, d[i]))
	}
	if d == SameDivisions(d[0]) {
		return strconv.Itoa(d[0])
	}
	return "[" + strings.Join(pairs, ",") + "]"
}

// Valid reports whether every element is 0 or a power of two that anybody can
// mean.
func (d Divisions) Valid() bool {
	return !slices.ContainsFunc(d[:], func(n int) bool { return n < 0 || n > maxDivisions || n&(n-1) != 0 })
}

// maxDivisions leaves sizes below its 512-fold alone.
const maxDivisions = 1 << 20

// Classes are Divisions made ready to round sizes, with a unit.
type Classes struct {
	bits [len(Divisions{})]int8 // log2 of the Divisions; -1: none
	unit int64
	fine int64 // Quantum, or the unit where that is less; a power of two
}

// NewClasses returns what rounds up to a multiple of unit after rounding up as d
// says. With powers, sizes that d leaves alone are rounded up to a power of two.
// changes reports whether Round does more than the function Round.
func NewClasses(d Divisions, unit int64, powers bool) (c Classes, changes bool) {
	c.unit, c.fine, changes = unit, min(unit, Quantum), unit != Quantum
	for i, n := range d {
		if c.bits[i] = -1; n > 1 {
			c.bits[i] = int8(bits.TrailingZeros(uint(n)))
		} else if powers {
			c.bits[i] = 0
		}
		changes = changes || c.bits[i] >= 0
	}
	return c, changes
}

// Round rounds a size up, in bytes, for 0 < size <= MaxRequest.
func (c *Classes) Round(size int64) int64 {
	size = (size + c.fine - 1) &^ (c.fine - 1)
	if n := c.bits[divisionOf(size)]; n >= 0 {
		size = RoundClass(size, int(n))
	}
	return RoundTo(size, c.unit)
}
