//go:build invariants

package epoch

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/atomic"
	"github.com/cupool/cupool/internal/atomic/interleave"
	"github.com/cupool/cupool/internal/block"
)

func explore(t *testing.T, setup func(r *interleave.Run)) {
	t.Helper()
	r := interleave.Explore(interleave.Options{}, setup)
	t.Log(r)
	if r.Failure != nil {
		require.FailNow(t, r.Failure.Error())
	}
	require.True(t, r.Complete)
}

// A goroutine gives the stream work and frees a block that it uses, while another
// one records an event. An epoch that is over then has its work behind it.
func TestEpochAgainstEventInAllOrders(t *testing.T) {
	explore(t, func(r *interleave.Run) {
		g := newRig(1)
		g.d.instant = true
		k := g.clocks[0]
		k.Open() // a block waits
		var work, covered atomic.Uint32
		g.d.recording = func() { covered.Store(work.Load()) }
		var epoch uint64
		r.Go(0, func() {
			work.Store(1)
			epoch = k.Open()
		})
		r.Go(1, func() {
			if err := k.Advance(Force); err != nil {
				panic(err)
			}
		})
		r.Finally(func() error {
			if k.Done() >= epoch && covered.Load() == 0 {
				return errors.New("the epoch is over, and its work was after the event")
			}
			return nil
		})
	})
}

// A block is freed that a stream was recorded on, while the stream ends: it does not
// wait for the stream when both are through.
func TestPendingAgainstEndInAllOrders(t *testing.T) {
	explore(t, func(r *interleave.Run) {
		g := newRig(2)
		p := g.pending()
		id, b := g.block(little)
		p.Record(b, g.clocks[1])
		var mu atomic.Mutex // of the heap
		freed := 0
		r.Go(0, func() {
			mu.Lock()
			defer mu.Unlock()
			if !p.Add(id, b) {
				freed++
			}
		})
		r.Go(1, func() {
			g.clocks[1].End()
			mu.Lock()
			defer mu.Unlock()
			p.End(g.clocks[1], func(block.ID, *block.Block) { freed++ })
		})
		r.Finally(func() error {
			if freed != 1 || p.Bytes() != 0 || b.Uses() != 0 {
				return fmt.Errorf("freed %d times, %d bytes wait", freed, p.Bytes())
			}
			return nil
		})
	})
}

// What is over stays so, and the newest epoch that is waited for, whoever says it
// last.
func TestClockAscendsInAllOrders(t *testing.T) {
	explore(t, func(r *interleave.Run) {
		k := newRig(1).clocks[0]
		for i := range 2 {
			r.Go(i, func() {
				k.Over(k.Mark())
				k.Open()
			})
		}
		var last uint64
		r.Go(2, func() {
			for range 2 {
				now := k.Done()
				if now < last {
					panic("what was over is not over any more")
				}
				last = now
			}
		})
		r.Finally(func() error {
			if k.Done() != 2 || k.Newest() != 3 {
				return fmt.Errorf("over up to %d, and waited for up to %d", k.Done(), k.Newest())
			}
			return nil
		})
	})
}
