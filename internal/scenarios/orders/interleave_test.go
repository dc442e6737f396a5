//go:build invariants

package orders_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/atomic/interleave"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
)

// What goroutines do with one block, in all orders of their steps without a lock.

const size = 4096

// scene is an allocator with a stream, and a live block that has a home on the first
// processor.
type scene struct {
	*cupool.Pool
	s          *cupool.Stream
	b, another cupool.Block
}

func newScene() *scene {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Capacity: 1 << 30})})
	must(err)
	s, err := c.NewStream()
	must(err)
	for range 4 {
		b, err := c.Alloc(size, nil)
		must(err)
		must(c.Free(b))
	}
	b, err := c.Alloc(size, nil)
	must(err)
	another, err := c.Alloc(size, nil)
	must(err)
	return &scene{c, s, b, another}
}

// only returns an error unless so many of the calls succeeded, and the others failed
// because the block was freed.
func only(n int, errs ...error) error {
	for _, err := range errs {
		if err == nil {
			n--
		} else if !errors.Is(err, cupool.ErrDoubleFree) && !errors.Is(err, cupool.ErrUseAfterFree) && !errors.Is(err, cupool.ErrStaleBlock) {
			return err
		}
	}
	if n != 0 {
		return fmt.Errorf("%d calls too few succeeded: %v", n, errs)
	}
	return nil
}

func TestOneBlockInAllOrders(t *testing.T) {
	old := runtime.GOMAXPROCS(1) // the first processor is the setup's, too
	t.Cleanup(func() { runtime.GOMAXPROCS(old) })
	type program struct {
		calls []func(x *scene) error
		check func(x *scene, errs []error) error
	}
	free := func(x *scene) error { return x.Free(x.b) }
	freePtr := func(x *scene) error { return x.FreePtr(x.b.Ptr(), size) }
	record := func(x *scene) error { return x.RecordStream(x.b, x.s) }
	freeOn := func(x *scene) error { return x.FreeOn(x.b, x.s) }
	later := func(x *scene) error { x.FreeLater(x.b); return nil }
	other := func(x *scene) error { x.FreeLater(x.another); return nil }
	both := func(x *scene, errs []error) error { // a drain finds both
		if n, err := x.ProcessDeferred(); err != nil {
			return err
		} else if x.Stats().LiveBytes != 0 {
			return fmt.Errorf("a block was lost (%d left the pending ones)", n)
		}
		return nil
	}
	drain := func(x *scene) error { _, err := x.ProcessDeferred(); return err }
	lookup := func(x *scene) error {
		b, err := x.Lookup(x.b.Ptr())
		if err == nil && b != x.b {
			return fmt.Errorf("%v is another block than %v", b, x.b)
		}
		return err
	}
	again := func(x *scene) error {
		if err := x.Free(x.b); err != nil {
			return err
		}
		b, err := x.Alloc(size, nil)
		if err != nil {
			return err
		}
		if b == x.b {
			return errors.New("the same handle went out again")
		}
		return x.Free(b)
	}
	wins := func(x *scene, errs []error) error { return only(1, errs...) }
	either := func(x *scene, errs []error) error { // the free, or the drain before it
		if errors.Is(errs[0], cupool.ErrDoubleFree) {
			return errs[2]
		}
		return errs[0]
	}
	anyway := func(x *scene, errs []error) error { return errs[0] }
	for name, p := range map[string]program{
		"two frees":                    {[]func(*scene) error{free, free}, wins},
		"three frees":                  {[]func(*scene) error{free, free, free}, wins},
		"a free by address":            {[]func(*scene) error{free, freePtr}, wins},
		"a free after another stream":  {[]func(*scene) error{free, freeOn}, wins},
		"two frees after the stream":   {[]func(*scene) error{freeOn, freeOn}, wins},
		"a look-up beside the free":    {[]func(*scene) error{free, lookup}, anyway},
		"a record beside the free":     {[]func(*scene) error{free, record}, anyway},
		"a free, and one again":        {[]func(*scene) error{again, free}, wins},
		"freed later, and by a drain":  {[]func(*scene) error{later, drain}, anyway},
		"freed later, by two":          {[]func(*scene) error{later, other, drain}, both},
		"two blocks freed later":       {[]func(*scene) error{later, other}, both},
		"freed later, and at once":     {[]func(*scene) error{free, later, drain}, either},
		"two records":                  {[]func(*scene) error{record, record}, anyway},
		"a look-up beside a new block": {[]func(*scene) error{again, lookup}, anyway},
	} {
		t.Run(name, func(t *testing.T) {
			r := interleave.Explore(interleave.Options{Max: testkit.Choose(20_000, 200)}, func(r *interleave.Run) {
				x := newScene()
				errs := make([]error, len(p.calls))
				for i, call := range p.calls {
					r.Go(min(i, 1), func() { errs[i] = call(x) })
				}
				r.Finally(func() error {
					if err := p.check(x, errs); err != nil {
						return err
					}
					if _, err := x.ProcessDeferred(); err != nil {
						return err
					}
					_ = x.Free(x.another)
					if err := x.Check(); err != nil {
						return err
					}
					live := x.Stats().LiveBytes
					err := x.Free(x.b)
					if live != 0 == (err != nil) {
						return fmt.Errorf("%d bytes are live, and the free said %v", live, err)
					}
					return x.Close()
				})
			})
			t.Log(r)
			if r.Failure != nil {
				require.FailNow(t, r.Failure.Error())
			}
		})
	}
}
