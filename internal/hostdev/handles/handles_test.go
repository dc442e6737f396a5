package handles

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

func TestTable(t *testing.T) {
	rnd := testkit.Rand(t)
	var table Table[int]
	live, dead := map[uintptr]*int{}, []uintptr{0, 1, 1 << 19, ^uintptr(0)}
	for range testkit.Rounds(20_000) {
		if rnd.IntN(5) > 1 {
			v := new(int)
			h := table.Add(v)
			require.NotZero(t, h)
			require.Nil(t, live[h])
			live[h] = v
		}
		for h, v := range live { // any one
			if rnd.IntN(2) == 0 {
				require.Same(t, v, table.Remove(h))
				delete(live, h)
				dead = append(dead, h)
			} else {
				require.Same(t, v, table.Get(h))
			}
			break
		}
		h := dead[rnd.IntN(len(dead))]
		if live[h] == nil {
			require.Nil(t, table.Get(h))
			require.Nil(t, table.Remove(h))
		}
		require.Equal(t, len(live), table.Len())
	}
	require.Len(t, table.All(), len(live))
	table.Clear()
	require.Zero(t, table.Len())
	for h := range live {
		require.Nil(t, table.Get(h))
	}
}

func TestTableIsFull(t *testing.T) {
	var table Table[int]
	v := new(int)
	n := 0
	for table.Add(v) != 0 {
		n++
	}
	require.Greater(t, n, 1_000_000)
	require.Len(t, table.All(), n)
}

func TestTableConcurrently(t *testing.T) {
	var table Table[int]
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5000 {
				v := new(int)
				h := table.Add(v)
				assert.Same(t, v, table.Get(h))
				assert.Same(t, v, table.Remove(h))
				assert.Nil(t, table.Get(h))
			}
		})
	}
	wg.Wait()
	require.Zero(t, table.Len())
}
