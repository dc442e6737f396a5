package callstack

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var finder = NewFinder(nil,
	"github.com/cupool/cupool/internal/callstack.outer",
	"github.com/cupool/cupool/internal/callstack.(*caller).call",
)

func ask() string { return finder.Find() }

//go:noinline
func outer() string { return inlined() }

func inlined() string { return ask() }

type caller struct{}

func (*caller) call(f func() string) string { return f() }

// A Finder finds the innermost of its functions, inlined or not, at every call.
func TestFinder(t *testing.T) {
	for range 3 {
		require.Empty(t, ask())
		require.Equal(t, finder.functions[0], outer())
		require.Equal(t, finder.functions[1], new(caller).call(ask))
		require.Equal(t, finder.functions[0], new(caller).call(outer))
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { outer() }))
}

// A Finder looks no further than within says.
func TestFinderWithin(t *testing.T) {
	f := NewFinder(func(string) bool { return true }, finder.functions...)
	inlined := func() string { return f.Find() }
	require.Equal(t, finder.functions[1], new(caller).call(inlined))
	f = NewFinder(func(function string) bool { return !strings.Contains(function, "TestFinderWithin.func") }, finder.functions...)
	require.Empty(t, new(caller).call(inlined))
}

func BenchmarkFinder(b *testing.B) {
	for b.Loop() {
		outer()
	}
}
