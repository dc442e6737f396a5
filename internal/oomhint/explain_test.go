package oomhint

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

func TestTable(t *testing.T) {
	require.Empty(t, Table("", nil, nil))
	var holders []snapshot.Holder
	for i := range 10 {
		holders = append(holders, snapshot.Holder{Pool: "p", Stream: 1, Label: fmt.Sprint(i), Live: 1 << 20, Pending: 512, Cached: 3 << 30})
	}
	require.Equal(t, "\n\tcause: limit"+
		"\n\twould have helped: Limit: 8<<30"+
		"\n\t      live    pending     cached"+
		"\n\t     1 MiB      512 B      3 GiB  pool \"p\", stream 1, label \"0\""+
		"\n\t     1 MiB      512 B      3 GiB  pool \"p\", stream 1, label \"1\"",
		Table("limit", []string{"Limit: 8<<30"}, holders[:2]))
	require.Contains(t, Table("", nil, holders), "label \"7\"\n\t     2 MiB      1 KiB      6 GiB  2 more")
}

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
