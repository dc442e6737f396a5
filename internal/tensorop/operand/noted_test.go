package operand

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"
)

func TestNoted(t *testing.T) {
	var l, other Noted[int]
	for i := range notedLimit - 1 {
		require.False(t, l.Add(MadeIn(i, nil)))
	}
	require.True(t, l.Add(MadeIn(notedLimit, nil)))
	l.Prune(func(i int) bool { return i >= notedLimit-3 })
	require.Equal(t, 3, l.Len())
	require.False(t, l.Add(MadeIn(0, nil)))
	other.Move(&l)
	require.Zero(t, l.Len())
	require.Len(t, other.Take(), 4)
	require.Empty(t, other.Take())
}

// A tensor that was given other data keeps that.
func TestMadeDisarm(t *testing.T) {
	d := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(2))
	p, n := Extent(d)
	m := MadeIn(1, d)
	m.Disarm(p+8, n)
	m.Disarm(p, n-8)
	require.False(t, IsFreed(d))
	m.Disarm(p, n)
	require.True(t, IsFreed(d))
	runtime.KeepAlive(d)
	MadeIn(1, nil).Disarm(p, n)
}
