// Package cupooltest checks in tests that device memory is freed.
package cupooltest

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/cupool/cupool"
)

// NoLeaks has the test fail, when it and its subtests are over, for blocks that were
// allocated since the call and are live then, of c and its private pools, or of c
// alone where it is one. The message groups them by the line that allocated them and
// by label, the largest first.
//
// Until then every allocation is recorded (cupool.History with SampleBytes 1), in place
// of any history that was on, which takes some microseconds each. When no test needs it
// any more recording is off.
//
// Before it fails it runs Go's collector until that finds no more blocks of tensors
// which nobody can reach. Blocks that were freed are no leaks, also while other streams
// still use them.
//
// Cleanups run in the opposite order of their registration: an allocator that the
// test closes by one has to have that registered before NoLeaks is called. The test
// fails where the allocator was closed before, as by a defer statement, since
// nothing can be said then.
//
// Tests that run in parallel over one allocator cannot be told apart: what others
// allocated and have not freed yet counts as leaked. Give each an allocator or a
// private pool of its own.
func NoLeaks(t testing.TB, c *cupool.Pool) {
	t.Helper()
	stop, err := record(c)
	if err != nil {
		t.Fatalf("cupooltest: %v", err)
	}
	before, _ := since(c, nil)
	t.Cleanup(func() {
		t.Helper()
		defer stop()
		if _, err := c.Lookup(0); errors.Is(err, cupool.ErrClosed) {
			t.Error("cupooltest: the allocator was closed before NoLeaks looked for leaks: close it in a Cleanup that is registered before NoLeaks is called")
			return
		}
		if leaks := settled(c, before); leaks != nil {
			t.Error(leaks)
		}
	})
}

// recordings counts who wants an allocator, that New made, to record.
var recordings = struct {
	sync.Mutex
	of map[*cupool.Pool]int
}{of: map[*cupool.Pool]int{}}

// record has every allocation be recorded until stop is called.
func record(c *cupool.Pool) (stop func(), err error) {
	root := c.DefaultStream().Pool()
	recordings.Lock()
	defer recordings.Unlock()
	if recordings.of[root] == 0 {
		if err := root.StartHistory(cupool.History{SampleBytes: 1}); err != nil {
			return nil, err
		}
	}
	recordings.of[root]++
	return func() {
		recordings.Lock()
		defer recordings.Unlock()
		if recordings.of[root]--; recordings.of[root] == 0 {
			delete(recordings.of, root)
			root.StopHistory()
		}
	}, nil
}

// since returns the blocks that are live and not known, and as an error.
func since(c *cupool.Pool, known map[cupool.Block]bool) (map[cupool.Block]bool, *cupool.LeakError) {
	blocks, leaks := map[cupool.Block]bool{}, &cupool.LeakError{}
	all := c.Leaks()
	if all == nil {
		return blocks, nil
	}
	for _, l := range all.Leaks {
		b, err := c.Lookup(l.Ptr)
		if err != nil || known[b] { // freed meanwhile
			continue
		}
		blocks[b] = true
		leaks.Leaks = append(leaks.Leaks, l)
		leaks.Bytes += l.Size
	}
	if len(blocks) == 0 {
		return blocks, nil
	}
	return blocks, leaks
}

// idleCollections is after how many collections in a row that found no garbage the
// leaks are believed.
const idleCollections = 20

// settled returns the leaks that remain when garbage was collected, or nil.
func settled(c *cupool.Pool, before map[cupool.Block]bool) *cupool.LeakError {
	_, leaks := since(c, before)
	for idle := 0; leaks != nil && idle < idleCollections; idle++ {
		runtime.GC()
		time.Sleep(time.Millisecond) // cleanups run in goroutines of their own
		for _, p := range append(c.Pools(), c) {
			if _, err := p.ProcessDeferred(); err != nil {
				return leaks
			}
		}
		was := len(leaks.Leaks)
		if _, leaks = since(c, before); leaks != nil && len(leaks.Leaks) < was {
			idle = 0
		}
	}
	return leaks
}
