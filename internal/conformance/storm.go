package conformance

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// testCloseStorm closes the allocator while goroutines use it in every way.
// They get ErrClosed, nothing worse, and all memory goes back.
func testCloseStorm(t *testing.T, e *env) {
	for round := range scaled(40) {
		f := NewFailing(nil)
		r := e.rigOn(t, f.over, unlimited)
		streams := []*cupool.Stream{r.DefaultStream(), r.stream(), r.stream()}
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for i := 0; ; i++ {
					s, u := streams[i%3], streams[(i+g)%3]
					b, err := r.Alloc([]int64{5000, 5000, 70000}[i%3], s)
					if err != nil {
						check(t, closed(err))
						return
					}
					if i%4 == g {
						check(t, closed(r.RecordStream(b, u)))
					}
					check(t, closed(r.Free(b)))
					if i%16 == 0 {
						_, err = r.ProcessDeferred()
						check(t, closed(err))
					}
				}
			})
		}
		time.Sleep(time.Duration(round%8) * 200 * time.Microsecond)
		var leaks *cupool.LeakError
		if err := r.Close(); err != nil && !errors.As(err, &leaks) {
			t.Error(err)
		}
		wg.Wait()
		require.Zero(t, f.Held())
	}
}

// closed lets pass what a call that raced with Close may return.
func closed(err error) error {
	if errors.Is(err, cupool.ErrClosed) {
		return nil
	}
	return err
}

// testLimitStorm: goroutines on different streams whose needs fit the limit
// together never run out, however their requests interleave, also while
// another one asks for more than there can be.
func testLimitStorm(t *testing.T, e *env) {
	const goroutines = 4
	r := e.rig(t, limited(goroutines))
	var wg, greedy sync.WaitGroup
	done := make(chan struct{})
	greedy.Go(func() {
		defer close(done)
		for range scaled(20) {
			if _, err := r.Alloc(goroutines*r.whole()+1, nil); !errors.Is(err, cupool.ErrOutOfMemory) {
				t.Errorf("more than the limit: %v", err)
			}
		}
	})
	for range goroutines {
		s := r.stream()
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				b, err := r.Alloc(r.whole()-int64(i%3)*100, s)
				if err != nil {
					t.Error(err)
					return
				}
				check(t, r.Free(b))
				if i%2 == 0 {
					_, err := r.Trim(0)
					check(t, err)
				}
			}
		})
	}
	wg.Wait()
	greedy.Wait()
	require.NoError(t, r.Check())
}
