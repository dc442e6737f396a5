package model

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// An allocator that is broken in one place, as all its pools are.
type (
	forgetsRecordStream struct{ Tested }
	forgetsFreeOn       struct{ Tested }
	forgetsEventWaits   struct{ Tested }
	forgetsStreamWaits  struct{ Tested }
	forgetsFrees        struct {
		Tested
		frees *atomic.Int64
	}
	handsOutTwice struct {
		Tested
		last *sync.Map // of a size, the last block of it
	}
	refuses struct {
		Tested
		allocs *atomic.Int64
	}
	miscountsBytes   struct{ Tested }
	miscountsGrown   struct{ Tested }
	miscountsPending struct{ Tested }
	missesInSnapshot struct{ Tested }
	hidesDoubleFree  struct{ Tested }
	hidesLeaks       struct{ Tested }
	hidesSizes       struct{ Tested }
	findsTheWrong    struct{ Tested }
	trimsNothing     struct{ Tested }
	losesContents    struct{ Tested }
	losesLabels      struct{ Tested }
	closesNothing    struct{ Tested }
)

func (x forgetsRecordStream) RecordStream(cupool.Block, *cupool.Stream) error { return nil }

func (x forgetsFreeOn) FreeOn(b cupool.Block, _ *cupool.Stream) error { return x.Free(b) }

func (x forgetsEventWaits) Wait(*cupool.Stream, *cupool.Event) error { return nil }

func (x forgetsStreamWaits) WaitStream(s, o *cupool.Stream) error { return nil }

func (x forgetsFrees) Free(b cupool.Block) error {
	if x.frees.Add(1)%4 == 0 {
		return nil
	}
	return x.Tested.Free(b)
}

func (x handsOutTwice) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	if last, ok := x.last.Load(size); ok && size > 0 {
		b := last.(cupool.Block)
		if _, err := x.Lookup(b.Ptr()); err == nil && !b.IsEmpty() {
			return b, nil
		}
	}
	b, err := x.Tested.Alloc(size, s)
	x.last.Store(size, b)
	return b, err
}

func (x refuses) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	if x.allocs.Add(1)%8 == 0 {
		return cupool.Block{}, &cupool.OOMError{Requested: size}
	}
	return x.Tested.Alloc(size, s)
}

func (x miscountsBytes) Stats() cupool.Stats {
	st := x.Tested.Stats()
	if st.All.Allocation.Current > 2 {
		st.All.RequestedBytes.Current += 512
	}
	return st
}

func (x miscountsGrown) Stats() cupool.Stats {
	st := x.Tested.Stats()
	st.Grown = min(st.Grown, 3)
	return st
}

func (x miscountsPending) Stats() cupool.Stats {
	st := x.Tested.Stats()
	st.All.Active.Current -= st.BlocksPending
	st.BlocksPending = 0
	return st
}

func (x missesInSnapshot) Snapshot() cupool.Snapshot {
	pic := x.Tested.Snapshot()
	if n := len(pic.Segments); n > 1 {
		pic.Segments = pic.Segments[:n-1]
	}
	return pic
}

func (x hidesDoubleFree) Free(b cupool.Block) error {
	if err := x.Tested.Free(b); !errors.Is(err, cupool.ErrDoubleFree) {
		return err
	}
	return nil
}

func (x hidesLeaks) Close() error {
	err := x.Tested.Close()
	if len(leakErrors(err)) > 0 {
		return nil
	}
	return err
}

func (x hidesSizes) FreePtr(p cupool.Ptr, _ int64) error { return x.Tested.FreePtr(p, -1) }

func (x findsTheWrong) Lookup(p cupool.Ptr) (cupool.Block, error) {
	b, err := x.Tested.Lookup(p)
	if err == nil && b.Ptr() != p {
		err = cupool.ErrForeignPointer
	}
	return b, err
}

func (x trimsNothing) Trim(keep int64) (int64, error) {
	_, err := x.Tested.Trim(keep)
	return 0, err
}

func (x losesContents) Sleep(func(cupool.Block) bool) error { return x.Tested.Sleep(nil) }

func (x losesLabels) WithLabel(string) cupool.Allocator { return x }

func (x closesNothing) Close() error { return nil }

// broken has a way to break an allocator, and what a report of it begins with.
var broken = map[string]struct {
	with func(Tested) Tested
	kind string
}{
	"RecordStream is forgotten":              {func(c Tested) Tested { return forgetsRecordStream{c} }, "early reuse"},
	"RecordStream is forgotten, contents":    {func(c Tested) Tested { return forgetsRecordStream{c} }, "contents"},
	"FreeOn forgets the stream":              {func(c Tested) Tested { return forgetsFreeOn{c} }, "early reuse"},
	"an event is not waited for":             {func(c Tested) Tested { return forgetsEventWaits{c} }, "order"},
	"a stream is not waited for":             {func(c Tested) Tested { return forgetsStreamWaits{c} }, "order"},
	"a free is forgotten":                    {func(c Tested) Tested { return forgetsFrees{c, new(atomic.Int64)} }, "books"},
	"a block is handed out twice":            {func(c Tested) Tested { return handsOutTwice{c, new(sync.Map)} }, "overlap"},
	"memory is refused that is there":        {func(c Tested) Tested { return refuses{c, new(atomic.Int64)} }, "errors: false out of memory"},
	"live bytes are miscounted":              {func(c Tested) Tested { return miscountsBytes{c} }, "books"},
	"growth is miscounted":                   {func(c Tested) Tested { return miscountsGrown{c} }, "books"},
	"pending blocks are not counted":         {func(c Tested) Tested { return miscountsPending{c} }, "books"},
	"a snapshot lacks a segment":             {func(c Tested) Tested { return missesInSnapshot{c} }, "books"},
	"a double free is no error":              {func(c Tested) Tested { return hidesDoubleFree{c} }, "errors"},
	"a leak is no error":                     {func(c Tested) Tested { return hidesLeaks{c} }, "errors"},
	"a wrong size is no error":               {func(c Tested) Tested { return hidesSizes{c} }, "errors"},
	"an address inside a block is not found": {func(c Tested) Tested { return findsTheWrong{c} }, "errors"},
	"Trim counts nothing":                    {func(c Tested) Tested { return trimsNothing{c} }, "books"},
	"Sleep keeps no contents":                {func(c Tested) Tested { return losesContents{c} }, "contents"},
	"labels are lost":                        {func(c Tested) Tested { return losesLabels{c} }, "books"},
	"Close gives nothing back to the device": {func(c Tested) Tested { return closesNothing{c} }, "leak"},
}

// TestBrokenAllocators: the model reports every one of them, for programs of
// the corpus, on a simulated device and, but for false out of memory, on the host.
func TestBrokenAllocators(t *testing.T) {
	programs := corpus(t)
	host, err := cupool.OpenHost(cupool.HostConfig{Capacity: 8 << 30})
	require.NoError(t, err)
	defer host.Close()
	for on, d := range map[string]cupool.Driver{"simulated": nil, "host": host} {
		for name, b := range broken {
			t.Run(on+"/"+name, func(t *testing.T) {
				if d != nil && strings.HasPrefix(b.kind, "errors: false") {
					t.Skip("another device may have less memory than it says")
				}
				rounds := 1
				if d != nil { // whose work may be done before a program goes on
					rounds = 50
				}
				for range rounds {
					for _, data := range programs {
						for _, err := range Run(data, Options{Break: b.with, Device: d}).Errs {
							if strings.HasPrefix(err.Error(), b.kind) {
								return
							}
						}
					}
				}
				require.Fail(t, "no program sees it")
			})
		}
	}
}
