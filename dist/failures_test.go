package dist_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/commtest"
)

// queueOn queues what f calls on memory of a rank, and returns the error of the call
// or, when the stream is done, of the Comm.
func queueOn(r commtest.Member, f func(m dist.Memory) error) error {
	p, err := commtest.NewPlace(r, make([]int32, 100))
	if err != nil {
		return err
	}
	defer p.Free()
	return commtest.First(f(p.M), r.Stream.Sync(), r.Err())
}

func sum(r commtest.Member) error {
	return queueOn(r, func(m dist.Memory) error { return r.AllReduce(m, m, dist.Sum, r.Stream) })
}

// each calls f for all ranks at once, and returns the error of each.
func each(ranks []commtest.Member, f func(r commtest.Member) error) []error {
	errs := make([]error, len(ranks))
	_ = commtest.Each(ranks, func(r commtest.Member) error { errs[r.Rank()] = f(r); return nil })
	return errs
}

// Ranks that call different things are told so, all of them.
func TestMismatchesAreFound(t *testing.T) {
	type calls func(r commtest.Member, m dist.Memory) error
	reduce := func(r commtest.Member, m dist.Memory) error { return r.AllReduce(m, m, dist.Sum, r.Stream) }
	twice := func(r commtest.Member, m dist.Memory) error {
		m.Count /= 2
		n := m
		n.Ptr += cupool.Ptr(m.Bytes())
		return r.Group(func() error { return commtest.First(reduce(r, m), reduce(r, n)) })
	}
	for name, test := range map[string]struct{ rank0, others calls }{
		"counts":     {func(r commtest.Member, m dist.Memory) error { m.Count--; return reduce(r, m) }, reduce},
		"types":      {func(r commtest.Member, m dist.Memory) error { m.Type = dist.Float32; return reduce(r, m) }, reduce},
		"operations": {func(r commtest.Member, m dist.Memory) error { return r.AllReduce(m, m, dist.Max, r.Stream) }, reduce},
		"methods":    {func(r commtest.Member, m dist.Memory) error { return r.Broadcast(m, m, 0, r.Stream) }, reduce},
		"groups":     {func(r commtest.Member, m dist.Memory) error { m.Count /= 2; return reduce(r, m) }, twice},
		"roots": {
			func(r commtest.Member, m dist.Memory) error { return r.Broadcast(m, m, 0, r.Stream) },
			func(r commtest.Member, m dist.Memory) error { return r.Broadcast(m, m, 1, r.Stream) },
		},
		"gathers": {
			func(r commtest.Member, m dist.Memory) error {
				part := m
				m.Count, part.Count = 99, 33
				return r.AllGather(m, part, r.Stream)
			},
			func(r commtest.Member, m dist.Memory) error {
				part := m
				m.Count, part.Count = 99, 33
				part.Ptr += cupool.Ptr(r.Rank()) * cupool.Ptr(part.Bytes())
				return r.ReduceScatter(part, m, dist.Sum, r.Stream)
			},
		},
		"what is sent": {
			func(r commtest.Member, m dist.Memory) error { m.Count = 5; return r.Send(m, 1, r.Stream) },
			func(r commtest.Member, m dist.Memory) error { return r.Recv(m, 0, r.Stream) },
		},
		"a Send that nobody waits for": {
			func(r commtest.Member, m dist.Memory) error {
				return commtest.First(r.Send(m, 1, r.Stream), reduce(r, m))
			}, reduce,
		},
		"a Recv of what nobody sends": {
			func(r commtest.Member, m dist.Memory) error {
				return commtest.First(r.Recv(m, 1, r.Stream), reduce(r, m))
			}, reduce,
		},
	} {
		for _, w := range ways {
			t.Run(w.name+" "+name, func(t *testing.T) {
				ranks := group(t, 3, w.pool)
				errs := each(ranks, func(r commtest.Member) error {
					f := test.others
					if r.Rank() == 0 {
						f = test.rank0
					}
					return queueOn(r, func(m dist.Memory) error { return f(r, m) })
				})
				for i, r := range ranks {
					if errs[i] == nil { // it had done its part, and is told
						errs[i] = r.Err()
					}
					require.True(t, errors.Is(errs[i], cupool.ErrSizeMismatch) || errors.Is(errs[i], dist.ErrRank), "%v", errs[i])
					require.EqualError(t, sum(r), r.Err().Error(), "later calls")
					require.Error(t, r.Close())
				}
				require.ErrorIs(t, errors.Join(errs...), cupool.ErrSizeMismatch)
				if say := map[string]string{"operations": "AllReduce of 100 int32 elements (max)", "roots": "Broadcast of 100 int32 elements from rank 0", "gathers": "AllGather of 33 int32 elements", "what is sent": "Recv of 100 int32 elements"}[name]; say != "" {
					require.ErrorContains(t, errors.Join(errs...), say)
				}
			})
		}
	}
}

// What cannot be is refused before anything is queued, and changes nothing.
func TestCallsAreChecked(t *testing.T) {
	everyWay(t, []int{1, 3}, func(t *testing.T, ranks []commtest.Member) {
		r := ranks[0]
		other, err := newPool(t).NewStream()
		require.NoError(t, err)
		commtest.Misuse(t, r, other)
		p, err := commtest.NewPlace(r, make([]int32, 12))
		require.NoError(t, err)
		odd, long, none := p.M, p.M, p.M
		odd.Type, long.Count, none.Ptr, none.Count = dist.Uint8+1, 13, 0, 1
		require.ErrorIs(t, r.AllReduce(odd, odd, dist.Sum, nil), cupool.ErrNotSupported)
		require.ErrorIs(t, r.AllReduce(long, long, dist.Sum, nil), cupool.ErrInvalidRange)
		one := p.M
		one.Count = 1
		for _, err := range []error{r.AllReduce(none, none, dist.Sum, nil), r.AllReduce(none, one, dist.Sum, nil), r.AllReduce(one, none, dist.Sum, nil)} {
			require.ErrorIs(t, err, cupool.ErrInvalidHandle)
		}
		require.ErrorIs(t, r.AllReduce(one, one, dist.Avg+1, nil), cupool.ErrNotSupported)
		empty := dist.Memory{Type: dist.Int32}
		require.ErrorIs(t, r.AllReduce(empty, empty, dist.Sum, other), cupool.ErrForeignStream)
		require.ErrorIs(t, r.Recv(one, r.Size(), nil), dist.ErrRank)
		if r.Size() > 1 {
			require.ErrorIs(t, r.Send(odd, 1, nil), cupool.ErrNotSupported)
			require.ErrorIs(t, r.Recv(odd, 1, nil), cupool.ErrNotSupported)
			times := p.M
			times.Count *= r.Size()
			require.ErrorIs(t, r.ReduceScatter(p.M, times, dist.Sum, nil), cupool.ErrInvalidRange, "at one address")
		}
		short := p.M
		short.Count = 11
		for call, err := range map[string]error{
			"AllReduce": r.AllReduce(p.M, short, dist.Sum, nil), "Broadcast": r.Broadcast(p.M, short, 0, nil), "AllGather": r.AllGather(p.M, short, nil),
			"ReduceScatter": r.ReduceScatter(short, p.M, dist.Sum, nil), "Send": r.Send(p.M, 7, nil), "Recv": r.Recv(p.M, 8, nil),
		} {
			require.ErrorContains(t, err, "dist: "+call+" of rank 0", call)
		}
		require.ErrorContains(t, r.Broadcast(p.M, p.M, 9, nil), fmt.Sprintf("dist: Broadcast of rank 0, with rank 9 of %d", r.Size()))
		require.ErrorContains(t, r.AllReduce(p.M, short, dist.Sum, nil), fmt.Sprintf("of %d ranks: dst is 12 int32 elements, src 11 int32", r.Size()))
		require.ErrorContains(t, r.Broadcast(p.M, short, 0, nil), "dst is 12 int32 elements, src 11 int32")
		require.ErrorIs(t, r.Send(p.M, 0, nil), dist.ErrRank, "to itself")
		require.ErrorIs(t, r.Recv(p.M, 0, nil), dist.ErrRank, "from itself")
		require.NoError(t, p.Free())
		require.NoError(t, commtest.Each(ranks, sum))
	})
	for _, pools := range [][]*cupool.Pool{nil, {newPool(t), nil}} {
		_, err := dist.Local(pools...)
		require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	}
}

// A rank that does not come ends all, and is named.
func TestLateRank(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		for within := 500 * time.Millisecond; ; within *= 2 { // longer, until the others were there
			errs := each(groupWithin(t, within, 3, w.pool), func(r commtest.Member) error {
				for r.Rank() == 1 && r.Err() == nil {
					time.Sleep(time.Millisecond) // comes when it is too late
				}
				return sum(r)
			})
			alone := true
			for _, err := range errs {
				require.ErrorIs(t, err, dist.ErrRank)
				require.ErrorContains(t, err, "late")
				alone = alone && strings.Contains(err.Error(), "for rank 1: ")
			}
			if alone {
				return
			}
			require.Less(t, within, patient, "%v", errs)
		}
	})
}

// A rank that is aborted ends all, also those that are idle, and is named.
func TestAbort(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		ranks := group(t, 4, w.pool)
		errs := each(ranks, func(r commtest.Member) error {
			switch r.Rank() {
			case 1:
				return r.Abort()
			case 3:
				return nil
			}
			return sum(r)
		})
		require.NoError(t, errs[1])
		require.ErrorIs(t, ranks[1].Err(), cupool.ErrClosed)
		require.NoError(t, ranks[1].Close())
		require.NoError(t, errs[3])
		require.NoError(t, ranks[2].Abort())
		require.EqualError(t, ranks[2].Err(), errs[2].Error(), "the first error stays")
		errs[3] = ranks[3].Err()
		for _, rank := range []int{0, 2, 3} {
			require.ErrorIs(t, errs[rank], dist.ErrRank)
			require.NotErrorIs(t, errs[rank], cupool.ErrClosed, "that is not this rank's")
			require.ErrorContains(t, errs[rank], "rank 1 was aborted")
			require.Error(t, ranks[rank].Close())
			require.ErrorIs(t, ranks[rank].Close(), cupool.ErrClosed)
		}
	})
}

// Nobody waits for a rank that has closed its Comm, but it has waited for what it
// had queued.
func TestClose(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		ranks := group(t, 2, w.pool)
		errs := each(ranks, func(r commtest.Member) error {
			p, err := commtest.NewPlace(r, []int32{1, 2})
			err = commtest.First(err, r.AllReduce(p.M, p.M, dist.Sum, r.Stream))
			if r.Rank() == 1 {
				return errors.Join(commtest.First(err, p.Is([]int32{2, 4})), sum(r))
			}
			return errors.Join(err, r.Close(), p.Free())
		})
		require.NoError(t, errs[0])
		require.ErrorIs(t, sum(ranks[0]), cupool.ErrClosed)
		require.ErrorIs(t, errs[1], dist.ErrRank)
		require.ErrorContains(t, errs[1], "rank 0, which has closed its Comm")
	})
}

// A Group whose streams or whose rank end in it queues nothing.
func TestEndsInAGroup(t *testing.T) {
	for name, test := range map[string]struct {
		last bool // another stream's call comes first
		end  func(r commtest.Member, s *cupool.Stream) error
		dead bool // the rank is, afterwards
	}{
		"its stream":     {false, func(_ commtest.Member, s *cupool.Stream) error { return s.Close() }, false},
		"another stream": {true, func(_ commtest.Member, s *cupool.Stream) error { return s.Close() }, false},
		"the rank":       {false, func(r commtest.Member, _ *cupool.Stream) error { return r.Abort() }, true},
	} {
		for _, w := range ways {
			t.Run(w.name+" "+name, func(t *testing.T) {
				ranks := group(t, 2, w.pool)
				r := ranks[0]
				s, err := r.Pool.NewStream()
				require.NoError(t, err)
				p, err := commtest.NewPlace(r, make([]int32, 4))
				require.NoError(t, err)
				streams := []*cupool.Stream{s}
				if test.last {
					streams = []*cupool.Stream{r.Stream, s}
				}
				require.ErrorIs(t, r.Group(func() error {
					for _, s := range streams {
						if err := r.AllReduce(p.M, p.M, dist.Sum, s); err != nil {
							return err
						}
					}
					return test.end(r, s)
				}), cupool.ErrClosed)
				require.NoError(t, p.Free())
				if dead := test.dead || w.name != "direct" && !test.last; dead { // a copy to the host has failed
					require.ErrorIs(t, commtest.Each(ranks[1:], sum), dist.ErrRank)
					require.ErrorIs(t, r.Err(), cupool.ErrClosed)
					return
				}
				require.NoError(t, commtest.Each(ranks, sum))
				require.NoError(t, commtest.Close(ranks))
			})
		}
	}
}

// Calls that wait on the caller's goroutine return what goes wrong.
func TestStagedCallsFail(t *testing.T) {
	ranks := group(t, 2, newStagedPool)
	for _, err := range each(ranks, func(r commtest.Member) error {
		p, err := commtest.NewPlace(r, make([]int32, 4))
		if err != nil {
			return nil
		}
		defer p.Free()
		p.M.Count -= r.Rank()
		return r.AllReduce(p.M, p.M, dist.Sum, r.Stream)
	}) {
		require.Error(t, err)
	}
}

// A Recv from a rank that waits at a meeting fails.
func TestRecvFromWhoMeets(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		ranks := group(t, 2, w.pool)
		errs := each(ranks, func(r commtest.Member) error {
			if r.Rank() == 1 {
				return sum(r)
			}
			for !dist.Meets(ranks[1].Comm) {
				time.Sleep(time.Millisecond)
			}
			return queueOn(r, func(m dist.Memory) error { return r.Recv(m, 1, r.Stream) })
		})
		require.ErrorIs(t, errs[0], cupool.ErrSizeMismatch)
		require.ErrorContains(t, errs[0], "rank 0 called Recv of 100 int32 elements, and rank 1 called AllReduce")
		require.ErrorIs(t, errs[1], dist.ErrRank)
	})
}

// The calls of a rank run in the order in which they came, also on streams that are ready
// earlier.
func TestCallsOfSeveralStreams(t *testing.T) {
	ranks := group(t, 2, newPool)
	gate, queued := make(chan struct{}), make(chan struct{})
	require.NoError(t, commtest.Each(ranks, func(r commtest.Member) error {
		s, err := r.Pool.NewStream()
		if err == nil && r.Rank() == 0 {
			err = s.Launch(func() { <-gate })
		}
		first, err1 := commtest.NewPlace(r, []int32{1, 2, 3})
		second, err2 := commtest.NewPlace(r, []int32{4, 5})
		err = commtest.First(err, err1, err2, r.Stream.Sync(), r.AllReduce(first.M, first.M, dist.Sum, s), r.AllReduce(second.M, second.M, dist.Sum, r.Stream))
		if r.Rank() == 0 {
			go func() { <-queued; time.Sleep(20 * time.Millisecond); close(gate) }() // the second is ready by then
			close(queued)
		}
		return commtest.First(err, s.Sync(), second.Is([]int32{8, 10}), first.Is([]int32{2, 4, 6}), s.Close())
	}))
	require.NoError(t, commtest.Close(ranks))
}

// Ranks that are no root may have no src.
func TestBroadcastWithoutSource(t *testing.T) {
	everyWay(t, []int{2}, func(t *testing.T, ranks []commtest.Member) {
		require.NoError(t, commtest.Each(ranks, func(r commtest.Member) error {
			p, err := commtest.NewPlace(r, []int32{int32(r.Rank()), 7})
			src := p.M
			if r.Rank() == 0 {
				src = dist.Memory{}
			}
			return commtest.First(err, r.Broadcast(p.M, src, 1, r.Stream), p.Is([]int32{1, 7}))
		}))
	})
}

// While a Group of a rank runs, another goroutine's call is one of its own, Close waits for
// both, and what comes after that is refused.
func TestBesideAGroup(t *testing.T) {
	var around func(c *hook.Call, do func() error) error
	ranks := group(t, 2, func(t testing.TB) *cupool.Pool { return newHookedPool(t, true, &around) })
	r := ranks[0]
	places := [2][2]commtest.Place[int32]{}
	for i, r := range ranks {
		for j := range places[i] {
			var err error
			places[i][j], err = commtest.NewPlace(r, []int32{int32(i + j)})
			require.NoError(t, err)
		}
	}
	reduce := func(rank, i int) error {
		m := places[rank][i].M
		return ranks[rank].AllReduce(m, m, dist.Sum, ranks[rank].Stream)
	}
	runs, goOn := make(chan struct{}), make(chan struct{})
	around = func(c *hook.Call, do func() error) error {
		if c.Name == "CopyIn" && c.Ptr == places[0][0].Ptr() { // the end of the Group
			close(runs)
			<-goOn
		}
		return do()
	}
	errs := make(chan error, 4)
	go func() { errs <- r.Group(func() error { return reduce(0, 0) }) }()
	go func() { errs <- commtest.First(reduce(1, 0), reduce(1, 1)) }()
	<-runs
	go func() { errs <- reduce(0, 1) }()
	for dist.Queued(r.Comm) < 2 {
		time.Sleep(time.Millisecond)
	}
	go func() { errs <- r.Close() }()
	for !dist.Closing(r.Comm) {
		time.Sleep(time.Millisecond)
	}
	require.ErrorIs(t, reduce(0, 0), cupool.ErrClosed)
	close(goOn)
	for range cap(errs) {
		select {
		case err := <-errs:
			require.NoError(t, err)
		case <-time.After(patient):
			t.Fatal("a call hangs")
		}
	}
	around = nil
	require.NoError(t, commtest.First(places[1][0].Is([]int32{1}), places[1][1].Is([]int32{3})))
	for i, want := range []int32{1, 3} {
		got, err := places[0][i].ToHost()
		require.NoError(t, err)
		require.Equal(t, []int32{want}, got)
		require.NoError(t, places[0][i].Free())
	}
}

// What the device says is what a call fails with.
func TestDeviceFails(t *testing.T) {
	failed := errors.New("no luck")
	for name, test := range map[string]struct {
		staging bool
		call    string
		nth     int
	}{
		"a copy to the host":   {true, "CopyOut", 1},
		"a copy to the device": {true, "CopyIn", 1},
		"the first order":      {false, "StreamWaitEvent", 1},
		"the order at the end": {false, "StreamWaitEvent", 2},
	} {
		t.Run(name, func(t *testing.T) {
			var around [2]func(c *hook.Call, do func() error) error
			rank := -1
			ranks := group(t, 2, func(t testing.TB) *cupool.Pool { rank++; return newHookedPool(t, test.staging, &around[rank]) })
			r := ranks[0]
			s, err := r.Pool.NewStream()
			require.NoError(t, err)
			p, err := commtest.NewPlace(r, make([]int32, 100))
			require.NoError(t, err)
			n := 0
			around[0] = func(c *hook.Call, do func() error) error {
				if c.Name == test.call {
					if n++; n == test.nth {
						return failed
					}
				}
				return do()
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				if test.nth == 2 || test.call == "CopyIn" { // the other rank is asked
					q, err := cupool.NewBuffer[int32](ranks[1].Pool, 100, ranks[1].Stream)
					m, _ := dist.Of(q)
					half := m
					half.Count = 50
					_ = commtest.First(err, ranks[1].Group(func() error {
						return commtest.First(ranks[1].AllReduce(half, half, dist.Sum, nil), ranks[1].AllReduce(half, half, dist.Sum, nil))
					}), ranks[1].Pool.Sync(), q.Free())
				}
			}()
			half := p.M
			half.Count = 50
			require.ErrorIs(t, r.Group(func() error {
				return commtest.First(r.AllReduce(half, half, dist.Sum, r.Stream), r.AllReduce(half, half, dist.Sum, s))
			}), failed)
			<-done
			require.NoError(t, r.Pool.Sync())
			require.NoError(t, p.Free())
		})
	}
}

// A Group of the only rank makes all its copies.
func TestGroupAlone(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		r := group(t, 1, w.pool)[0]
		from, err := commtest.NewPlace(r, []int32{7})
		require.NoError(t, err)
		var to [2]commtest.Place[int32]
		for i := range to {
			to[i], err = commtest.NewPlace(r, []int32{0})
			require.NoError(t, err)
		}
		require.NoError(t, r.Group(func() error {
			return commtest.First(r.AllReduce(to[0].M, from.M, dist.Sum, r.Stream), r.AllReduce(to[1].M, from.M, dist.Sum, r.Stream))
		}))
		require.NoError(t, commtest.First(to[0].Is([]int32{7}), to[1].Is([]int32{7}), from.Free()))
	})
}

// TestFailuresAtRandom has a rank of a random program abort, close, or fail by its device. All
// calls return, and no memory is left.
func TestFailuresAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	for range testkit.Rounds(160) {
		seed++
		for _, staging := range []bool{false, true} {
			failAtRandom(t, seed, staging)
			if t.Failed() {
				t.Fatalf("seed %d, staging %v", seed, staging)
			}
		}
	}
}

// A randomProgram is what all ranks do, each with random numbers of the same seed.
type randomProgram struct {
	commtest.Member
	rnd     *rand.Rand
	streams [2]*cupool.Stream
	places  []commtest.Place[int32]
}

func failAtRandom(t *testing.T, seed uint64, staging bool) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	n, steps := 2+rnd.IntN(3), 1+rnd.IntN(12)
	victim, at, how := rnd.IntN(n), rnd.IntN(steps), rnd.IntN(6)
	calls := []string{"CopyOut", "CopyIn", "StreamWaitEvent", "RecordEvent", "Copy", "MemAlloc", "QueryEvent"}
	failing, left := calls[rnd.IntN(len(calls))], int64(1+rnd.IntN(8))
	var armed atomic.Bool
	arounds := make([]func(c *hook.Call, do func() error) error, n)
	arounds[victim] = func(c *hook.Call, do func() error) error {
		if armed.Load() && c.Name == failing && atomic.AddInt64(&left, -1) == 0 {
			return errors.New("no luck")
		}
		return do()
	}
	pools := 0
	ranks := group(t, n, func(t testing.TB) *cupool.Pool {
		pools++
		return newHookedPool(t, staging, &arounds[pools-1])
	})
	ends := []func(r commtest.Member){
		func(r commtest.Member) { _ = r.Abort() },
		func(r commtest.Member) { _ = r.Close() },
		func(r commtest.Member) { go r.Abort() },
		func(r commtest.Member) { go r.Close() },
	}
	testkit.Finishes(t, fmt.Sprintf("a call, with seed %d", seed), func() {
		_ = each(ranks, func(r commtest.Member) error {
			x := randomProgram{Member: r, rnd: rand.New(rand.NewPCG(seed, 2))}
			err := x.run(steps, func(step int) {
				switch {
				case r.Rank() != victim || step != at:
				case how < len(ends):
					ends[how](r)
				default:
					armed.Store(true)
				}
			})
			if err != nil {
				_ = r.Abort() // or the others wait for it
			}
			return err
		})
		armed.Store(false)
		_ = each(ranks, func(r commtest.Member) error { return r.Close() })
	})
	for _, r := range ranks {
		require.NoError(t, r.Pool.Sync())
		require.Zero(t, r.Pool.Stats().LiveBytes)
	}
}

// run makes random calls, each after a function has been called with its number.
func (x *randomProgram) run(steps int, before func(step int)) error {
	defer func() {
		for _, p := range x.places {
			_ = p.Free()
		}
	}()
	s, err := x.Pool.NewStream()
	if err != nil {
		return err
	}
	defer s.Close()
	x.streams = [2]*cupool.Stream{x.Stream, s}
	for step := range steps {
		before(step)
		if err := x.step(); err != nil {
			return err
		}
	}
	return errors.Join(x.Stream.Sync(), s.Sync())
}

func (x *randomProgram) step() error {
	n, s, other := x.Size(), x.streams[x.rnd.IntN(2)], x.streams[x.rnd.IntN(2)]
	var m [2]dist.Memory
	for i := range m {
		p, err := commtest.NewPlace(x.Member, make([]int32, 12*n))
		if err != nil {
			return err
		}
		x.places, m[i] = append(x.places, p), p.M
	}
	part := m[0]
	part.Count = 12
	switch x.rnd.IntN(5) {
	case 0:
		return x.AllReduce(m[0], m[0], dist.Sum, s)
	case 1:
		return x.AllGather(m[1], part, s)
	case 2:
		return x.ReduceScatter(part, m[1], dist.Sum, s)
	case 3:
		return x.Group(func() error {
			return errors.Join(x.Send(m[0], (x.Rank()+1)%n, s), x.Recv(m[1], (x.Rank()+n-1)%n, other))
		})
	}
	return x.Group(func() error {
		return errors.Join(x.AllReduce(m[0], m[0], dist.Sum, s), x.AllReduce(m[1], m[1], dist.Max, other))
	})
}

// TestCloseLost: what was queued on a device that is lost does not run, and Close does not wait
// for it.
func TestCloseLost(t *testing.T) {
	var pools []*cupool.Pool
	for range 2 {
		d, err := cupool.OpenHost(cupool.HostConfig{Capacity: 64 << 20})
		require.NoError(t, err)
		c, err := cupool.New(cupool.Config{Driver: d, Backing: cupool.BackingSegments})
		require.NoError(t, err)
		defer d.Close()
		defer c.Close()
		pools = append(pools, c)
	}
	comms, err := dist.Local(pools...)
	require.NoError(t, err)
	b, err := cupool.NewBuffer[float32](pools[0], 4, nil)
	require.NoError(t, err)
	m, err := dist.Of(b)
	require.NoError(t, err)
	gate := make(chan struct{})
	require.NoError(t, pools[0].DefaultStream().Launch(func() { <-gate; panic("lost") }))
	require.NoError(t, comms[0].AllReduce(m, m, dist.Sum, nil))
	close(gate)
	testkit.Finishes(t, "Close", func() {
		require.ErrorIs(t, comms[0].Close(), cupool.ErrDeviceLost)
		require.ErrorIs(t, comms[1].Close(), dist.ErrRank)
	})
}
