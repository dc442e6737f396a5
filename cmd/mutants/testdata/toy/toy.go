// Package toy has a place for each operator, and forms that no mutant may break.
package toy

import "strings"

const limit = 8 // no mutant: an array needs a constant

type stack struct {
	items [limit]int
	n     int
	log   strings.Builder
}

func (s *stack) push(x int) bool {
	if s.n >= limit {
		return false
	}
	s.items[s.n] = x
	s.n++
	return true
}

func (s *stack) pop() (x int, ok bool) {
	if s.n > 0 && s.items[s.n-1] >= 0 {
		s.n--
		return s.items[s.n], true
	} else {
		return 0, false
	}
}

func (s *stack) note(a, b string) {
	s.log.WriteString(a)
	s.log.WriteString(b)
}

func (s *stack) both() { s.note("x", "y") }

func sum(n int) (total int) {
	for i := 0; i < n; i++ {
		total += i
	}
	return total
}

func kind(x any) string {
	switch x := x.(type) {
	case int:
		if x == 1 {
			return "one"
		}
		return "int"
	default:
		panic("unknown")
	}
}

func unused() int { return 3 }
