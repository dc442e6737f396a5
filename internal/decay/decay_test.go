package decay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What was idle at every look goes back, and only that.
func TestLook(t *testing.T) {
	var idle int64
	var released []int64
	d := Decay{
		Idle:    func() int64 { return idle },
		Release: func(n int64) int64 { released = append(released, n); idle -= n; return n },
	}
	for i := range steps {
		if idle = 100; i == 3 {
			idle = 30
		}
		d.look()
	}
	require.Equal(t, []int64{30}, released)
	for range steps - 1 {
		d.look()
	}
	require.Equal(t, []int64{30, 70}, released[:2])
	require.Zero(t, idle)
}

func TestStopWithoutStart(*testing.T) {
	d := new(Decay)
	d.Stop()
	d.Wait()
}
