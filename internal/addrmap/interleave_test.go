//go:build invariants

package addrmap

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/atomic/interleave"
)

// Two goroutines enter blocks where there is no leaf yet, and a third looks for
// both: neither entry is lost, and what is found was entered.
func TestNewLeafInAllOrders(t *testing.T) {
	r := interleave.Explore(interleave.Options{}, func(r *interleave.Run) {
		m := New(9)
		addrs := [2]uint64{1 << 40, 1<<40 + 512}
		var seen [2]uint32
		for i, addr := range addrs {
			r.Go(i, func() { m.Set(addr, uint32(i+1)) })
		}
		r.Go(2, func() { seen = [2]uint32{m.Get(addrs[0]), m.Get(addrs[1])} })
		r.Finally(func() error {
			for i, addr := range addrs {
				if got := m.Get(addr); got != uint32(i+1) || seen[i] != 0 && seen[i] != got {
					return fmt.Errorf("%#x is %d, and was found as %d", addr, got, seen[i])
				}
			}
			if want := int64(2*fanout*8 + fanout*4); m.Bytes() != want {
				return fmt.Errorf("the nodes take %d bytes instead of %d", m.Bytes(), want)
			}
			return nil
		})
	})
	t.Log(r)
	if r.Failure != nil {
		require.FailNow(t, r.Failure.Error())
	}
	require.True(t, r.Complete)
}
