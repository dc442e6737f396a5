package oomhint

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestExpr(t *testing.T) {
	for n, want := range map[int64]string{8 << 30: "8<<30", 1300 << 20: "1300<<20", 1: "1<<20", 1<<20 + 1: "2<<20"} {
		require.Equal(t, want, Expr(n))
	}
}

// Pictures are taken again when nineteen times their time has passed.
func TestPictures(t *testing.T) {
	var p Pictures
	n := 0
	p.Take(func() {
		n++
		p.Take(func() { t.Error("one is under way") })
	})
	require.Equal(t, 1, n)
	p.next = time.Now().Add(time.Hour)
	p.Take(func() { n++ })
	require.Equal(t, 1, n)
	p.next = time.Now()
	start := time.Now()
	p.Take(func() { time.Sleep(time.Millisecond) })
	require.GreaterOrEqual(t, p.next.Sub(start), 20*time.Millisecond)
}
