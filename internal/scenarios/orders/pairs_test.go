//go:build invariants

package orders_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/lock/orders"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
)

// small is an allocator, a private pool of it, and two streams. The pool is nearly full, and
// caches memory on both streams.
type small struct {
	root, pool *cupool.Pool
	s, u       *cupool.Stream
	b, c       cupool.Block // live, of s
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func newSmall() *small {
	d := simdev.New(simdev.Config{Capacity: 64 << 20})
	root, err := cupool.New(cupool.Config{Driver: d, MagazineBytes: -1})
	must(err)
	x := &small{root: root}
	x.pool, err = root.NewPool(cupool.PoolConfig{Limit: 40 << 20})
	must(err)
	x.s, err = root.NewStream()
	must(err)
	x.u, err = root.NewStream()
	must(err)
	for _, s := range []*cupool.Stream{x.s, x.u} {
		b, err := x.pool.Alloc(8<<20, s)
		must(err)
		must(x.pool.Free(b))
	}
	x.b, err = x.pool.Alloc(4<<20, x.s)
	must(err)
	x.c, err = x.pool.Alloc(2<<20, x.s)
	must(err)
	return x
}

// documented are the errors that a call may fail with because of the other one.
var documented = []error{
	cupool.ErrClosed, cupool.ErrAsleep, cupool.ErrOutOfMemory, cupool.ErrNotSupported, cupool.ErrDoubleFree, cupool.ErrUseAfterFree,
	cupool.ErrStaleBlock,
}

func allowed(err error) error {
	var leaks *cupool.LeakError // of Close, while blocks are live
	if err == nil || errors.As(err, &leaks) || slices.ContainsFunc(documented, func(d error) bool { return errors.Is(err, d) }) {
		return nil
	}
	return err
}

var calls = map[string]func(*small) error{
	"Stream.Close": func(x *small) error { return x.s.Close() },
	"Reset":        func(x *small) error { return x.pool.Reset() },
	"Trim":         func(x *small) error { _, err := x.root.Trim(0); return err },
	"EmptyCache":   func(x *small) error { return x.pool.EmptyCache() },
	"Hold": func(x *small) error {
		release, err := x.pool.Hold(x.b)
		if err == nil {
			release()
		}
		return err
	},
	"Close":  func(x *small) error { return x.pool.Close() },
	"Retire": func(x *small) error { return x.pool.Retire() },
	"Sleep": func(x *small) error {
		err := x.pool.Sleep(nil)
		if err == nil {
			err = x.pool.Wake()
		}
		return err
	},
	"Alloc": func(x *small) error { _, err := x.pool.Alloc(24<<20, x.u); return err }, // a miss that takes the other stream's memory
	"Free":  func(x *small) error { return x.pool.Free(x.b) },
	"FreeOn": func(x *small) error {
		return x.pool.FreeOn(x.b, x.u)
	},
	"RecordStream": func(x *small) error { return x.pool.RecordStream(x.c, x.u) },
	"NewStream": func(x *small) error {
		s, err := x.root.NewStream()
		if err == nil {
			_, err = x.pool.Alloc(1<<20, s)
		}
		return err
	},
	"SetSoftLimit": func(x *small) error { return x.pool.SetSoftLimit(4 << 20) },
}

// Two public calls meet in the orders in which they can take their locks.
func TestPairsOfCalls(t *testing.T) {
	names := slices.Sorted(maps.Keys(calls))
	o := orders.Options{Switches: testkit.Choose(2, 1), Max: testkit.Choose(2000, 120)}
	for i, a := range names {
		for _, b := range names[i:] {
			t.Run(a+" "+b, func(t *testing.T) {
				played, err := orders.Explore(o, func() orders.Program {
					x := newSmall()
					var errs [2]error
					return orders.Program{Calls: []func(){func() { errs[0] = calls[a](x) }, func() { errs[1] = calls[b](x) }}, Check: func() error {
						for _, err := range errs {
							if allowed(err) != nil {
								return err
							}
						}
						if err := x.root.Check(); err != nil {
							return err
						}
						for _, y := range []cupool.Block{x.b, x.c} {
							if err := x.pool.Free(y); allowed(err) != nil {
								return err
							}
						}
						if err := x.root.Check(); err != nil {
							return err
						}
						var leaks *cupool.LeakError // of what the calls allocated
						if err := x.root.Close(); err != nil && !errors.As(err, &leaks) {
							return fmt.Errorf("close: %w", err)
						}
						return nil
					}}
				})
				t.Log(played, "orders")
				require.NoError(t, err)
			})
		}
	}
}
