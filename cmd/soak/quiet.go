package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cupool/cupool"
)

// beQuiet stops everything now and then, checks the allocator's rules and
// compares its books with the program's. Every tenth time the allocator sleeps.
func (k *soak) beQuiet(ctx context.Context, r *rand.Rand) {
	pause := min(max(k.duration/50, 200*time.Millisecond), 5*time.Second)
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		k.quiet.Lock()
		k.tolerate("quiet moment", k.checkBooks())
		if n%10 == 4 {
			k.tolerate("sleep", k.sleep())
		}
		k.quiet.Unlock()
		k.count.quiets.Add(1)
	}
}

// members are the allocator and its pools, but for the planner's.
func (k *soak) members() []*cupool.Pool {
	all := []*cupool.Pool{k.pool}
	for _, p := range k.pool.Pools() {
		if p != k.planned {
			all = append(all, p)
		}
	}
	return all
}

// deferred frees what FreeLater was given.
func (k *soak) deferred() {
	for _, c := range k.members() {
		if _, err := c.ProcessDeferred(); !errors.Is(err, cupool.ErrClosed) {
			k.tolerate("deferred", err)
		}
	}
}

func (k *soak) checkBooks() error {
	k.deferred()
	var blocks, bytes int64
	for _, c := range k.members() {
		if err := c.Check(); err != nil {
			return fmt.Errorf("the rules of %q: %w", c.Name(), err)
		}
		st := c.Stats()
		blocks += st.All.Allocation.Current
		bytes += st.All.RequestedBytes.Current
	}
	for _, l := range k.pool.Stats().Labels {
		if l.Label == trainingLabel {
			blocks -= l.Blocks.Current
			bytes -= l.Bytes.Current
		}
	}
	if blocks != k.live.Load() || bytes != k.bytes.Load() {
		k.leaked(fmt.Sprintf("the allocator has %d blocks of %d bytes that are live, the program has %d of %d", blocks, bytes, k.live.Load(), k.bytes.Load()))
	}
	return nil
}

// sleep has the allocator and its pools sleep and wake, with all contents.
func (k *soak) sleep() error {
	all := func(cupool.Block) bool { return true }
	for _, c := range k.members() {
		err := c.Sleep(all)
		if errors.Is(err, cupool.ErrNotSupported) || errors.Is(err, cupool.ErrClosed) {
			continue
		}
		if err == nil {
			k.count.sleeps.Add(1)
		}
		if err := errors.Join(err, c.Wake()); err != nil {
			return err
		}
	}
	return nil
}
