package toy

import "testing"

func TestStack(t *testing.T) {
	var s stack
	for i := range limit {
		if !s.push(i) {
			t.Fatal(i)
		}
	}
	if s.push(9) {
		t.Fatal("too many")
	}
	if x, ok := s.pop(); x != 7 || !ok {
		t.Fatal(x, ok)
	}
}

func TestNote(t *testing.T) {
	var s stack
	if s.both(); s.log.String() != "xy" {
		t.Fatal(s.log.String())
	}
}

func TestSum(t *testing.T) {
	if sum(3) != 3 {
		t.Fatal(sum(3))
	}
}

func TestKind(t *testing.T) {
	if kind(1) != "one" {
		t.Fatal(kind(1))
	}
}

func TestBroken(t *testing.T) { t.Fatal("fails without a mutant") }
