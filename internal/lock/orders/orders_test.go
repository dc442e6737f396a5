//go:build invariants

package orders

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/lock"
)

// Two goroutines add one, each in two steps: one switch is enough to lose an addition.
func TestFindsALostUpdate(t *testing.T) {
	lost := errors.New("lost")
	setup := func() Program {
		var mu lock.Mutex
		n := 0
		add := func() {
			mu.Lock()
			old := n
			mu.Unlock()
			mu.Lock()
			n = old + 1
			mu.Unlock()
		}
		return Program{[]func(){add, add}, func() error {
			if n != 2 {
				return lost
			}
			return nil
		}}
	}
	played, err := Explore(Options{}, setup)
	require.NoError(t, err)
	require.Equal(t, 2, played, "one after the other")
	_, err = Explore(Options{Switches: 1}, setup)
	require.ErrorIs(t, err, lost)
	played, err = Explore(Options{Switches: 1, Max: 3}, setup)
	require.LessOrEqual(t, played, 3, err)
}

// A goroutine that ends with a lock leaves the next one waiting.
func TestFindsADeadlock(t *testing.T) {
	_, err := Explore(Options{}, func() Program {
		var a lock.Mutex
		return Program{[]func(){a.Lock, a.Lock}, func() error { return nil }}
	})
	require.ErrorIs(t, err, ErrDeadlock)
}

func TestFindsAPanic(t *testing.T) {
	_, err := Explore(Options{}, func() Program {
		return Program{[]func(){func() { panic("broken") }}, func() error { return nil }}
	})
	require.ErrorContains(t, err, "goroutine 0: broken")
}
