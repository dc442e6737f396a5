package dist

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// queueOn queues what f calls on a stream of the rank, and returns the error of the
// call or, when the stream is done, of the Comm.
func queueOn(r *rig, count int, f func(m Memory) error) error {
	m, b, err := r.memory(Int32, make([]byte, 4*count))
	if err != nil {
		return err
	}
	defer b.Free()
	if err := f(m); err != nil {
		return err
	}
	if err := r.s.Sync(); err != nil {
		return err
	}
	return r.Err()
}

// Ranks that call different things are told so, all of them.
func TestMismatchesAreFound(t *testing.T) {
	big := piece
	for name, test := range map[string]struct{ rank0, others func(r *rig, m Memory) error }{
		"groups": {
			func(r *rig, m Memory) error { return r.AllReduce(m, m, Sum, r.s) },
			func(r *rig, m Memory) error {
				one, two := m, m
				one.Count, two.Count, two.Ptr = 1, 1, m.Ptr+4
				return r.Group(func() error { return errors.Join(r.AllReduce(one, one, Sum, r.s), r.AllReduce(two, two, Sum, r.s)) })
			},
		},
		"counts": {
			func(r *rig, m Memory) error { m.Count = 5; return r.AllReduce(m, m, Sum, r.s) },
			func(r *rig, m Memory) error { m.Count = 6; return r.AllReduce(m, m, Sum, r.s) },
		},
		"large counts": {
			func(r *rig, m Memory) error { m.Count--; return r.AllReduce(m, m, Sum, r.s) },
			func(r *rig, m Memory) error { return r.AllReduce(m, m, Sum, r.s) },
		},
		"small and large": {
			func(r *rig, m Memory) error { m.Count = 5; return r.AllReduce(m, m, Sum, r.s) },
			func(r *rig, m Memory) error { return r.AllReduce(m, m, Sum, r.s) },
		},
		"types": {
			func(r *rig, m Memory) error { m.Type = Float32; return r.AllReduce(m, m, Sum, r.s) },
			func(r *rig, m Memory) error { return r.AllReduce(m, m, Sum, r.s) },
		},
		"operations": {
			func(r *rig, m Memory) error { return r.AllReduce(m, m, Max, r.s) },
			func(r *rig, m Memory) error { return r.AllReduce(m, m, Sum, r.s) },
		},
		"roots": {
			func(r *rig, m Memory) error { return r.Broadcast(m, m, 0, r.s) },
			func(r *rig, m Memory) error { return r.Broadcast(m, m, 1, r.s) },
		},
		"methods": {
			func(r *rig, m Memory) error { return r.Broadcast(m, m, 0, r.s) },
			func(r *rig, m Memory) error { return r.AllReduce(m, m, Sum, r.s) },
		},
		"what is sent": {
			func(r *rig, m Memory) error { m.Count = 5; return r.Send(m, 1, r.s) },
			func(r *rig, m Memory) error { return r.Recv(m, 0, r.s) },
		},
		"a call that one rank left out": {
			func(r *rig, m Memory) error {
				if err := r.Send(m, 1, r.s); err != nil {
					return err
				}
				return r.AllReduce(m, m, Sum, r.s)
			},
			func(r *rig, m Memory) error { return r.AllReduce(m, m, Sum, r.s) },
		},
	} {
		for _, w := range ways {
			t.Run(w.name+" "+name, func(t *testing.T) {
				comms, pools := group(t, 3, w.pool)
				all := rigs(t, comms, pools)
				errs := parallel(3, func(rank int) error {
					f := test.others
					if rank == 0 {
						f = test.rank0
					}
					return queueOn(all[rank], big, func(m Memory) error { return f(all[rank], m) })
				})
				found := false
				for rank, err := range errs {
					if err == nil { // it had done its part, and is told soon
						require.Eventually(t, func() bool { return comms[rank].Err() != nil }, patient, time.Millisecond, "rank %d", rank)
						err = comms[rank].Err()
					}
					require.True(t, errors.Is(err, cupool.ErrSizeMismatch) || errors.Is(err, ErrRank), "%v", err)
					found = found || errors.Is(err, cupool.ErrSizeMismatch)
					require.Equal(t, comms[rank].Err().Error(), queueOn(all[rank], 1, func(m Memory) error { return comms[rank].AllReduce(m, m, Sum, nil) }).Error(), "later calls")
					require.Error(t, comms[rank].Close())
				}
				require.True(t, found, "%v", errs)
			})
		}
	}
}

// What cannot be is refused before anything is queued, and changes nothing.
func TestCallsAreChecked(t *testing.T) {
	everyWay(t, []int{1, 3}, func(t *testing.T, comms []Comm, pools []*cupool.Pool) {
		all, n := rigs(t, comms, pools), len(comms)
		other, err := newPool(t).NewStream()
		require.NoError(t, err)
		r := all[0]
		m, b, err := r.memory(Int32, make([]byte, 4*12))
		require.NoError(t, err)
		short, odd := m, m
		short.Count, odd.Type = 11, 77
		for want, errs := range map[error][]error{
			cupool.ErrSizeMismatch: {
				r.AllReduce(m, short, Sum, r.s), r.Broadcast(m, short, 0, r.s), r.AllGather(m, short, r.s),
				r.ReduceScatter(short, m, Sum, r.s), r.AllReduce(m, Memory{Ptr: m.Ptr, Count: 12, Type: Float32}, Sum, r.s),
			},
			cupool.ErrNotSupported:  {r.AllReduce(m, m, Avg, r.s), r.AllReduce(m, m, Op(9), r.s), r.AllReduce(odd, odd, Sum, r.s)},
			cupool.ErrForeignStream: {r.AllReduce(m, m, Sum, other)},
			cupool.ErrInvalidHandle: {r.AllReduce(Memory{Count: 1, Type: Int32}, Memory{Count: 1, Type: Int32}, Sum, r.s)},
			ErrRank: {
				r.Broadcast(m, m, n, r.s), r.Broadcast(m, m, -1, r.s), r.Send(m, n, r.s), r.Recv(m, -1, r.s), r.Send(m, 0, r.s), r.Recv(m, 0, r.s),
			},
		} {
			for i, err := range errs {
				require.ErrorIs(t, err, want, "%d", i)
			}
		}
		require.NoError(t, b.Free())
		require.Error(t, r.AllReduce(m, m, Sum, nil), "freed memory")
		noErrors(t, parallel(n, func(rank int) error { return sum(comms[rank], pools[rank], 100) }))
	})
}

func TestLateRank(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			comms, pools := groupWithin(t, 500*time.Millisecond, 3, w.pool)
			all := rigs(t, comms, pools)
			errs := parallel(3, func(rank int) error {
				if rank == 1 {
					require.Eventually(t, func() bool { return comms[1].Err() != nil }, patient, time.Millisecond) // comes when it is too late
				}
				return queueOn(all[rank], 100, func(m Memory) error { return all[rank].AllReduce(m, m, Sum, all[rank].s) })
			})
			for _, err := range errs {
				require.ErrorIs(t, err, ErrRank)
				require.ErrorContains(t, err, "late")
				require.ErrorContains(t, err, "rank 1")
			}
		})
	}
}

func TestAbort(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			comms, pools := group(t, 3, w.pool)
			all := rigs(t, comms, pools)
			errs := parallel(3, func(rank int) error {
				if rank == 1 {
					return comms[1].Abort()
				}
				return queueOn(all[rank], 100, func(m Memory) error { return all[rank].AllReduce(m, m, Sum, all[rank].s) })
			})
			require.NoError(t, errs[1])
			require.ErrorIs(t, comms[1].Err(), cupool.ErrClosed)
			require.NoError(t, comms[1].Close())
			for _, rank := range []int{0, 2} {
				require.ErrorIs(t, errs[rank], ErrRank)
				require.ErrorContains(t, errs[rank], "rank 1 was aborted")
				require.Error(t, comms[rank].Close())
				require.ErrorIs(t, comms[rank].Close(), cupool.ErrClosed)
			}
		})
	}
}

// A rank that is idle learns of another's end, too.
func TestIdleRankIsTold(t *testing.T) {
	for _, w := range ways {
		comms, _ := group(t, 3, w.pool)
		require.NoError(t, comms[2].Abort())
		for _, c := range comms[:2] {
			require.Eventually(t, func() bool { return errors.Is(c.Err(), ErrRank) }, patient, time.Millisecond, w.name)
		}
	}
}

func TestCloseWaitsForWhatIsQueued(t *testing.T) {
	everyWay(t, []int{2}, func(t *testing.T, comms []Comm, pools []*cupool.Pool) {
		all := rigs(t, comms, pools)
		var m Memory
		var b *cupool.Buffer[byte]
		closed := make(chan error, 1)
		noErrors(t, parallel(2, func(rank int) (err error) {
			r := all[rank]
			if rank == 1 {
				return queueOn(r, 1000, func(m Memory) error { return r.AllReduce(m, m, Sum, r.s) })
			}
			if m, b, err = r.memory(Int32, make([]byte, 4000)); err != nil {
				return err
			}
			if err := r.AllReduce(m, m, Sum, r.s); err != nil {
				return err
			}
			closed <- r.Comm.Close()
			return nil
		}))
		require.NoError(t, <-closed)
		require.ErrorIs(t, all[0].AllReduce(m, m, Sum, all[0].s), cupool.ErrClosed)
		require.NoError(t, b.Free())
		comms[0] = closedComm{comms[0]}
	})
}

// closedComm is a Comm that was closed.
type closedComm struct{ Comm }

func (closedComm) Close() error { return nil }

func TestLocalRefuses(t *testing.T) {
	_, err := Local()
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, err = Local(newPool(t), nil)
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
}

func TestFailedGroup(t *testing.T) {
	pool := newPool(t)
	comms, err := Local(pool)
	require.NoError(t, err)
	failed := errors.New("the group's function failed")
	require.ErrorIs(t, comms[0].Group(func() error { return failed }), failed)
	require.NoError(t, comms[0].Group(func() error { return nil }))
	require.NoError(t, sum(comms[0], pool, 10))
}
