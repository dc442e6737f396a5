package gate

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A door counts how often it is closed.
type door struct{ closed int }

func (d *door) Close() error { d.closed++; return nil }

// come has n connections wait.
func come(g *Gate, n int) (doors []*door, guests []*Guest) {
	for range n {
		d := new(door)
		doors, guests = append(doors, d), append(guests, g.Come(d, nil))
	}
	return doors, guests
}

// Who has waited longest goes, and no one else.
func TestCome(t *testing.T) {
	g := &Gate{Room: 3}
	doors, guests := come(g, 3)
	guests[0].Leave()
	guests[0].Leave()
	guests[1].Wait()
	more, _ := come(g, 1)
	for i, d := range append(doors, more...) {
		require.Zero(t, d.closed, "%d", i)
	}
	come(g, 1)
	require.Equal(t, []int{0, 0, 1, 0}, []int{doors[0].closed, doors[1].closed, doors[2].closed, more[0].closed})
	require.GreaterOrEqual(t, time.Since(guests[2].since), Grace)
	come(g, 1)
	require.Equal(t, 1, doors[1].closed)
	g.Thin() // of more and the last two
	require.Equal(t, 1, more[0].closed)
	require.Equal(t, 1, g.queue.Len())
	guests[2].Leave() // was sent away
	require.Equal(t, 1, g.queue.Len())
}

// When the listener ends nobody waits for room.
func TestStop(t *testing.T) {
	g := &Gate{Room: 1}
	stop := make(chan struct{})
	close(stop)
	for range 100 {
		g.Come(new(door), stop)
	}
	require.Equal(t, 100, g.queue.Len())
	short := func() (int, error) { return 0, os.NewSyscallError("accept", syscall.EMFILE) }
	_, err := Accept(g, stop, func(error, time.Duration) {}, short)
	require.ErrorIs(t, err, syscall.EMFILE)
}

func TestAccept(t *testing.T) {
	g := new(Gate)
	for _, passing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		doors, _ := come(g, 5)
		var pauses []time.Duration
		c, err := Accept(g, nil, func(err error, pause time.Duration) {
			require.ErrorIs(t, err, passing)
			pauses = append(pauses, pause)
		}, func() (int, error) {
			if len(pauses) < 3 {
				return 0, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", passing)}
			}
			return 7, nil
		})
		require.NoError(t, err)
		require.Equal(t, 7, c)
		require.Equal(t, []time.Duration{firstPause, 2 * firstPause, 4 * firstPause}, pauses)
		for i, d := range doors {
			require.Equal(t, 1, d.closed, "%d", i)
		}
	}
	for _, lasting := range []error{net.ErrClosed, os.ErrDeadlineExceeded, syscall.EINVAL, errors.New("other")} {
		_, err := Accept(g, nil, nil, func() (int, error) { return 0, &net.OpError{Op: "accept", Err: lasting} })
		require.ErrorIs(t, err, lasting)
	}
}
