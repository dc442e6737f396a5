package dist

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// What comes as its time is over is not late, though it is taken before the timer looks.
func TestNotLate(t *testing.T) {
	pool, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	comms, err := localWithin(0, pool, pool)
	require.NoError(t, err)
	c := comms[0].(*local)
	looks := 0
	comes := func() bool {
		if looks++; looks == 2 {
			time.Sleep(20 * time.Millisecond) // the timer waits for the lock by then
			return true
		}
		return false
	}
	c.room.mu.Lock()
	err = c.waitLocked(comes, func() []int { return []int{1} })
	c.room.mu.Unlock()
	require.NoError(t, err)
	time.Sleep(20 * time.Millisecond) // time to be wrong
	require.NoError(t, c.Err())
	require.NoError(t, pool.Close())
}
