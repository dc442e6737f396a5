package ipc

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestUsesInOrder: the oldest come first, then the process and the name decide.
func TestUsesInOrder(t *testing.T) {
	at := time.Unix(1, 0)
	want := []Use{
		{Name: "z", Peer: Peer{PID: 9}, Since: at},
		{Name: "b", Peer: Peer{PID: 1}, Since: at.Add(1)}, {Name: "a", Peer: Peer{PID: 2}, Since: at.Add(1)}, {Name: "b", Peer: Peer{PID: 2}, Since: at.Add(1)},
		{Name: "a", Peer: Peer{PID: 1}, Since: at.Add(2)},
	}
	s := &Server{refs: map[uint64]*ref{}}
	for i, u := range want {
		s.refs[uint64(i)] = &ref{use: u}
	}
	require.Equal(t, want, s.usesLocked())
}

// TestAdmit: a process of another namespace has no number here.
func TestAdmit(t *testing.T) {
	c := &Config{UIDs: []int{5}, PIDs: []int{-1, 0, 1}}
	require.NoError(t, c.admit(Peer{PID: 1, UID: 5}))
	for _, pid := range []int{-1, 0} {
		err := c.admit(Peer{PID: pid, UID: 5})
		require.ErrorIs(t, err, ErrRefused)
		require.ErrorContains(t, err, "PID namespace")
	}
	full, err := Config{}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, 4096, full.MaxOpen)
	require.EqualError(t, c.admit(Peer{PID: 1, UID: 6}), "cupool: ipc: process 1 is of user 6, which Config.UIDs does not have: refused")
}
