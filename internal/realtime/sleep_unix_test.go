//go:build unix

package realtime

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The clock of a bubble does not go on while a goroutine sleeps by the
// computer's.
func TestSleepInBubble(t *testing.T) {
	outside := time.Now()
	synctest.Test(t, func(t *testing.T) {
		inside := time.Now()
		for range 10 {
			Sleep(time.Millisecond)
		}
		require.Equal(t, inside, time.Now())
	})
	require.GreaterOrEqual(t, time.Since(outside), time.Millisecond)
}
