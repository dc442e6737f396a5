package conformance

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
)

// The battery for allocators that are no Pool: what the interface promises,
// and nothing else.

// subject is an allocator under test.
type subject struct {
	cupool.Allocator
	t   *testing.T
	opt Options
}

var allocatorBattery = []struct {
	name string
	test func(*subject)
}{
	{"sizes", subjectSizes},
	{"random_in_goroutines", subjectParallel},
	{"mistakes", subjectMistakes},
	{"double_free_in_goroutines", subjectDoubleFree},
	{"another_allocators_things", subjectForeign},
	{"early_free", subjectEarlyFree},
	{"stream_closed", subjectStreamClosed},
}

// RunAllocator runs the battery on allocators that open makes. The test of each
// ends with nothing live; whoever opened it closes it after that.
func RunAllocator(t *testing.T, open func(*testing.T) cupool.Allocator, opts ...Options) {
	var opt Options
	for _, o := range opts {
		opt = o
	}
	for _, b := range allocatorBattery {
		t.Run(b.name, func(t *testing.T) { b.test(&subject{Allocator: open(t), t: t, opt: opt}) })
	}
}

func (a *subject) alloc(size int64, s *cupool.Stream) cupool.Block {
	a.t.Helper()
	b, err := a.Alloc(size, s)
	require.NoError(a.t, err)
	return b
}

func (a *subject) stream() *cupool.Stream {
	a.t.Helper()
	s, err := a.NewStream()
	require.NoError(a.t, err)
	a.t.Cleanup(func() { _ = s.Close() })
	return s
}

// busy keeps s from finishing what it is given, or skips the test.
func (a *subject) busy(s *cupool.Stream) (release func()) {
	hook := a.opt.Busy
	if hook == nil {
		hook = launchBusy
	}
	f, err := hook(a.Driver(), s)
	if err != nil {
		a.t.Skipf("no stream can be kept busy here: %v", err)
	}
	release = sync.OnceFunc(f)
	a.t.Cleanup(release)
	return release
}

func subjectSizes(a *subject) {
	t, sh := a.t, &shadow{}
	for size, want := range map[int64]error{
		-1: cupool.ErrInvalidSize, -1 << 62: cupool.ErrInvalidSize, 1 << 62: cupool.ErrInvalidSize, 1 << 50: cupool.ErrOutOfMemory,
	} {
		_, err := a.Alloc(size, nil)
		require.ErrorIs(t, err, want)
	}
	empty := a.alloc(0, nil)
	require.True(t, empty.IsEmpty())
	require.NoError(t, errors.Join(a.Free(empty), a.Free(empty), a.FreePtr(0, 0), a.FreePtr(0, -1), a.RecordStream(empty, nil)))
	s := a.stream()
	var live []cupool.Block
	for i, size := range []int64{1, 511, 512, 513, 4095, 70_000, mib - 1, mib, mib + 1, 10 * mib, 33*mib + 7} {
		for _, on := range []*cupool.Stream{nil, s} {
			b := a.alloc(size, on)
			require.Equal(t, size, b.Size())
			require.NoError(t, sh.add(b, uint64(i)))
			live = append(live, b)
		}
	}
	for i, b := range live {
		on := []*cupool.Stream{a.DefaultStream(), s}[i%2]
		if !a.opt.NoContents {
			require.NoError(t, write(b, uint64(i), on))
		}
	}
	for i, b := range live {
		if !a.opt.NoContents {
			require.NoError(t, verify(b, uint64(i), []*cupool.Stream{a.DefaultStream(), s}[i%2]), "neighbours wrote there")
		}
		got, err := a.Lookup(b.Ptr() + cupool.Ptr(b.Size()-1))
		require.NoError(t, err)
		require.Equal(t, b, got)
		require.NoError(t, []func() error{
			func() error { return a.Free(b) },
			func() error { return a.FreePtr(b.Ptr(), -1) },
			func() error { return a.FreePtr(b.Ptr(), b.Size()) },
		}[i%3]())
	}
}

// piece is a live block with what it must hold.
type piece struct {
	cupool.Block
	s    *cupool.Stream
	seed uint64
}

// anySize prefers small sizes and repeats some, so that magazines are used.
func anySize(c chooser) int {
	if c.IntN(3) == 0 {
		return []int{512, 5000, 70000, 1 << 20, 3 << 20, 256}[c.IntN(6)]
	}
	return 1 + c.IntN(1<<(1+c.IntN(22)))
}

func subjectParallel(a *subject) {
	s, sh := testkit.Seed(a.t), &shadow{}
	shared := a.stream()
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		own := a.stream()
		wg.Go(func() { errs[i] = a.randomSteps(choices(s, i), sh, scaled(2000), own, shared, a.DefaultStream()) })
	}
	wg.Wait()
	require.NoError(a.t, errors.Join(errs...))
}

// randomSteps allocates, fills, copies across streams and frees at random, and
// verifies all it reads. It returns the first error.
func (a *subject) randomSteps(c chooser, sh *shadow, steps int, streams ...*cupool.Stream) (err error) {
	note := func(errs ...error) { err = errors.Join(append(errs, err)...) }
	var nextSeed uint64
	var live []*piece
	var stale []cupool.Block
	drop := func(i int) {
		p := live[i]
		live[i] = live[len(live)-1]
		live = live[:len(live)-1]
		if !a.opt.NoContents && c.IntN(2) == 0 {
			note(verify(p.Block, p.seed, p.s))
		}
		note(sh.remove(p.Block))
		if c.IntN(3) == 0 {
			note(a.FreePtr(p.Ptr(), p.Size()))
		} else {
			note(a.Free(p.Block))
		}
		stale = append(stale, p.Block)
	}
	add := func(size int64, s *cupool.Stream) *piece {
		b, err := a.Alloc(size, s)
		if err != nil {
			note(err)
			return nil
		}
		nextSeed++
		p := &piece{Block: b, s: s, seed: uint64(b.Ptr()) + nextSeed}
		note(sh.add(b, p.seed))
		live = append(live, p)
		return p
	}
	for ; steps > 0 && err == nil; steps-- {
		s := streams[c.IntN(len(streams))]
		switch n := c.IntN(10); {
		case n < 5 && len(live) < 100 || len(live) == 0:
			if p := add(int64(anySize(c)), s); p != nil && !a.opt.NoContents {
				note(write(p.Block, p.seed, s))
			}
		case n < 7:
			drop(c.IntN(len(live)))
		case n < 9: // another stream copies it, and it is freed before that is done
			i := c.IntN(len(live))
			src := live[i]
			dst := add(src.Size(), s)
			if dst == nil {
				break
			}
			note(s.WaitStream(src.s))
			if !a.opt.NoContents {
				note(copyTo(dst.Block, src.Block, s))
			}
			dst.seed = src.seed
			note(a.RecordStream(src.Block, s))
			if c.IntN(2) == 0 {
				drop(i)
			}
		case len(stale) > 0:
			b := stale[c.IntN(len(stale))]
			if got, again := a.RecordStream(b, s), a.Free(b); !errors.Is(got, cupool.ErrUseAfterFree) || !errors.Is(again, cupool.ErrDoubleFree) {
				note(fmt.Errorf("%v was freed; using it gives %v, and freeing it again %v", b, got, again))
			}
		}
		if len(stale) > 200 {
			stale = stale[100:]
		}
	}
	for len(live) > 0 {
		drop(len(live) - 1)
	}
	return err
}

func subjectMistakes(a *subject) {
	t := a.t
	for range 3 { // the size recurs: there may be magazines
		require.NoError(t, a.Free(a.alloc(5000, nil)))
	}
	b := a.alloc(5000, nil)
	blockError(t, a.FreePtr(b.Ptr()+1, -1), cupool.ErrInteriorPointer, b.Ptr()+1)
	blockError(t, a.FreePtr(b.Ptr(), 4999), cupool.ErrSizeMismatch, b.Ptr())
	blockError(t, a.FreePtr(64, -1), cupool.ErrForeignPointer, 64)
	_, err := a.Lookup(64)
	blockError(t, err, cupool.ErrForeignPointer, 64)
	got, err := a.Lookup(b.Ptr() + 4999)
	require.NoError(t, err, "the mistakes changed nothing")
	require.Equal(t, b, got)

	require.NoError(t, a.Free(b))
	blockError(t, a.Free(b), cupool.ErrDoubleFree, b.Ptr())
	blockError(t, a.RecordStream(b, nil), cupool.ErrUseAfterFree, b.Ptr())
	for _, size := range []int64{-1, 5000} {
		err := a.FreePtr(b.Ptr(), size)
		require.True(t, errors.Is(err, cupool.ErrDoubleFree) || errors.Is(err, cupool.ErrForeignPointer), "%v", err)
	}
	_, err = a.Lookup(b.Ptr() + 1)
	require.True(t, errors.Is(err, cupool.ErrUseAfterFree) || errors.Is(err, cupool.ErrForeignPointer), "%v", err)
	for range 100 { // until its memory is handed out again
		again := a.alloc(5000, nil)
		require.NotEqual(t, b, again)
		if again.Ptr() == b.Ptr() {
			blockError(t, a.Free(b), cupool.ErrStaleBlock, b.Ptr())
		}
		defer func() { require.NoError(t, a.Free(again)) }()
	}
}

func subjectDoubleFree(a *subject) {
	for range 50 {
		b := a.alloc(5000, nil)
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() { errs[i] = a.Free(b) })
		}
		wg.Wait()
		freed := 0
		for _, err := range errs {
			if err == nil {
				freed++
			} else {
				require.ErrorIs(a.t, err, cupool.ErrDoubleFree)
			}
		}
		require.Equal(a.t, 1, freed)
	}
}

func subjectForeign(a *subject) {
	other, err := cupool.New(cupool.Config{Driver: a.Driver()})
	require.NoError(a.t, err)
	b, err := other.Alloc(5000, nil)
	require.NoError(a.t, err)
	blockError(a.t, a.Free(b), cupool.ErrForeignPointer, b.Ptr())
	blockError(a.t, a.FreePtr(b.Ptr(), -1), cupool.ErrForeignPointer, b.Ptr())
	blockError(a.t, a.RecordStream(b, nil), cupool.ErrForeignPointer, b.Ptr())
	for _, size := range []int64{0, 1} {
		_, err = a.Alloc(size, other.DefaultStream())
		require.ErrorIs(a.t, err, cupool.ErrForeignStream)
	}
	own := a.alloc(1, nil)
	require.ErrorIs(a.t, a.RecordStream(own, other.DefaultStream()), cupool.ErrForeignStream)
	require.ErrorIs(a.t, other.Free(own), cupool.ErrForeignPointer)
	require.NoError(a.t, errors.Join(a.Free(own), other.Free(b), other.Close()))
}

// subjectEarlyFree frees a block that three streams read: two are done, and the first
// has yet to begin.
func subjectEarlyFree(a *subject) {
	t := a.t
	const size = 3 * mib
	if a.opt.NoContents {
		t.Skip("nothing can be read")
	}
	owner := a.stream()
	b := a.alloc(size, owner)
	require.NoError(t, write(b, sceneSeed, owner))
	require.NoError(t, owner.Sync())
	var release func()
	var copies []cupool.Block
	var streams []*cupool.Stream
	for i := range 3 {
		s := a.stream()
		dst := a.alloc(size, s)
		require.NoError(t, s.Sync())
		if i == 0 {
			release = a.busy(s)
		}
		require.NoError(t, copyTo(dst, b, s))
		require.NoError(t, a.RecordStream(b, s))
		copies, streams = append(copies, dst), append(streams, s)
	}
	for _, s := range streams[1:] {
		require.NoError(t, s.Sync())
	}
	require.NoError(t, a.Free(b))
	var more []cupool.Block
	for range 20 {
		x, err := a.Alloc(size, owner)
		if errors.Is(err, cupool.ErrOutOfMemory) {
			break
		}
		require.NoError(t, err)
		require.NoError(t, write(x, sceneSeed+1, owner))
		more = append(more, x)
	}
	release()
	for i, dst := range copies {
		require.NoError(t, verify(dst, sceneSeed, streams[i]), "the block was overwritten before it was read")
	}
	for _, x := range append(more, copies...) {
		require.NoError(t, a.Free(x))
	}
}

func subjectStreamClosed(a *subject) {
	t := a.t
	s, err := a.NewStream()
	require.NoError(t, err)
	own, used := a.alloc(5000, s), a.alloc(5000, nil)
	require.NoError(t, a.RecordStream(used, s))
	require.NoError(t, s.Close())
	for _, size := range []int64{0, 1} {
		_, err = a.Alloc(size, s)
		require.ErrorIs(t, err, cupool.ErrClosed)
	}
	got, err := a.Lookup(own.Ptr())
	require.NoError(t, err)
	require.Equal(t, own, got)
	require.NoError(t, errors.Join(a.Free(own), a.Free(used)))
	require.NoError(t, a.Free(a.alloc(5000, nil)))
}

// blockError checks that an error is a *BlockError of a reason that names
// the address, and what it prints.
func blockError(t *testing.T, err, reason error, p cupool.Ptr) {
	t.Helper()
	var e *cupool.BlockError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, reason)
	require.Equal(t, p, e.Ptr)
	require.Contains(t, err.Error(), p.String())
	require.Contains(t, err.Error(), reason.Error())
}
