package conformance

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testlevel"
)

var errInjected = errors.New("injected failure")

// faulty is a program over a device whose calls fail.
type faulty struct {
	*cupool.Pool
	t    *testing.T
	f    *Failing
	name string // of the case, for messages
	live []cupool.Block
	bad  int // operations that failed
}

// do checks an operation: it succeeds or reports a failure that was
// injected, and the books are right either way.
func (p *faulty) do(what string, err error) bool {
	if err != nil {
		p.bad++
		if !errors.Is(err, errInjected) && !errors.Is(err, cupool.ErrOutOfMemory) {
			p.t.Fatalf("%s: %s: %v", p.name, what, err)
		}
	}
	st := p.Stats()
	if err := p.Check(); err != nil {
		p.t.Fatalf("%s: after %s: %v", p.name, what, err)
	}
	held := p.f.Held()
	if p.f.Failed("MemRelease")+p.f.Failed("MemUnmap") > 0 {
		held = min(held, st.All.ReservedBytes.Current) // what could not be given back is tried again later
	}
	if held != st.All.ReservedBytes.Current {
		p.t.Fatalf("%s: after %s the device has given %d bytes, the books say %d", p.name, what, held, st.All.ReservedBytes.Current)
	}
	if n := int64(len(p.live)); st.All.Allocation.Current != n {
		p.t.Fatalf("%s: after %s the books have %d live blocks, there are %d", p.name, what, st.All.Allocation.Current, n)
	}
	return err == nil
}

func (p *faulty) alloc(size int64, s *cupool.Stream) cupool.Block {
	b, err := p.Alloc(size, s)
	if err == nil {
		p.live = append(p.live, b)
	}
	p.do(fmt.Sprintf("alloc %d", size), err)
	return b
}

// free must always succeed: a failing event makes the block wait.
func (p *faulty) free(b cupool.Block, users ...*cupool.Stream) {
	if b.IsEmpty() {
		return
	}
	for _, u := range users {
		require.NoError(p.t, p.RecordStream(b, u), p.name)
	}
	require.NoError(p.t, p.Free(b), p.name)
	for i := range p.live {
		if p.live[i] == b {
			p.live = append(p.live[:i], p.live[i+1:]...)
			break
		}
	}
	p.do("free", nil)
}

func (p *faulty) stream() *cupool.Stream {
	s, err := p.NewStream()
	if !p.do("new stream", err) {
		return p.DefaultStream()
	}
	return s
}

// program uses every driver call there is.
func (p *faulty) program(w int64) {
	s, u := p.stream(), p.stream()
	a, b, c, d := p.alloc(5000, s), p.alloc(70000, s), p.alloc(3*mib, s), p.alloc(w, nil)
	if !a.IsEmpty() {
		p.do("memset", u.Memset(a.Ptr(), 1, 100))
		p.do("copy in", u.CopyIn(a.Ptr(), make([]byte, 8)))
		p.do("copy out", u.CopyOut(make([]byte, 8), a.Ptr()))
		p.do("copy", u.Copy(a.Ptr(), a.Ptr()+1024, 512))
	}
	p.free(a, u)
	_, err := p.ProcessDeferred()
	p.do("process deferred", err)
	p.free(b)
	b = p.alloc(60000, s)
	p.free(c, u, p.DefaultStream())
	if ev, err := u.Record(); p.do("record", err) {
		p.do("wait", s.Wait(ev))
		p.do("sync event", ev.Sync())
		_, err := ev.Done()
		p.do("done", err)
		require.NoError(p.t, ev.Close())
	}
	for _, x := range []*cupool.Stream{s, u, p.DefaultStream()} { // what is idle can be taken from now on
		p.do("sync", x.Sync())
	}
	p.free(d, u)
	d = p.alloc(2*w, nil) // over the limit, unless what is cached goes
	p.free(p.alloc(w, u), s)
	if g := p.f.VMMGranularity(); g > 0 {
		p.stitch(2*g, s, u)
	}
	e := p.alloc(w, u)
	p.do("trim", second(p.Trim(0)))
	p.free(d)
	p.do("empty cache", p.EmptyCache())
	if u != p.DefaultStream() {
		p.do("close stream", u.Close())
	}
	p.free(e)
	p.do("reserve", p.Reserve(3*mib, nil))
	p.do("wait stream", p.DefaultStream().WaitStream(p.DefaultStream()))
	p.free(b)
}

// stitch joins free memory, twice: the second time it is mapped already.
func (p *faulty) stitch(size int64, s, u *cupool.Stream) {
	var x [4]cupool.Block
	for i := range x {
		x[i] = p.alloc(size, s)
	}
	p.free(x[0])
	p.free(x[2])
	for range 2 {
		p.free(p.alloc(2*size, s), u)
		p.do("sync", u.Sync())
	}
	p.free(x[1])
	p.free(x[3])
}

func second[T any](_ T, err error) error { return err }

// recover heals the device and checks that everything works again, and that
// nothing was lost.
func (p *faulty) recover(w int64) {
	t := p.t
	p.f.Heal()
	for len(p.live) > 0 {
		p.free(p.live[0])
	}
	for range 3 {
		_, err := p.ProcessDeferred()
		require.NoError(t, err, p.name)
	}
	require.NoError(t, p.EmptyCache(), p.name)
	require.Zero(t, p.Stats().BlocksPending, "%s: a block is lost", p.name)
	require.Zero(t, p.f.Held(), p.name)
	require.Zero(t, p.Stats().All.ReservedBytes.Current, p.name)
	b, err := p.Alloc(2*w, nil)
	require.NoError(t, err, p.name)
	require.NoError(t, p.Free(b), p.name)
	require.NoError(t, p.Check(), p.name)
}

// with runs the program on a new allocator over the device.
func (e *env) faulty(t *testing.T, d cupool.Driver, name string, arm func(*Failing)) *faulty {
	f := NewFailing(d)
	cfg := e.cfg
	cfg.Driver = f
	w := wholeOf(&cfg)
	cfg.Limit, cfg.Fraction = max(4*w, 64*mib), 0
	cfg.SoftLimit = w // streams and pools take idle memory from each other
	c, err := cupool.New(cfg)
	require.NoError(t, err)
	p := &faulty{Pool: c, t: t, f: f, name: name}
	arm(f)
	p.program(w)
	p.recover(w)
	require.NoError(t, c.Close(), name)
	require.Zero(t, f.Held(), name)
	require.Zero(t, f.Ranges(), name)
	return p
}

// testFailingCalls makes every call of the program fail in turn.
func testFailingCalls(t *testing.T, e *env) {
	d := e.open(t)
	defer func() { require.NoError(t, d.Close()) }()
	clean := e.faulty(t, d, "clean", func(*Failing) {})
	require.Zero(t, clean.bad)
	kinds := []string{"NewStream", "DestroyStream", "SyncStream", "NewEvent", "RecordEvent", "QueryEvent", "StreamWaitEvent", "SyncEvent", "Copy", "CopyIn", "CopyOut", "Memset"}
	if granularityOf(&cupool.Config{Driver: d, Backing: e.cfg.Backing}) > 0 {
		require.NotZero(t, clean.Stats().Stitches, "the program does not stitch")
		require.True(t, clean.Stats().Moves > 0 || e.opt.WaitsRun, "nor moves memory between streams")
		kinds = append(kinds, "AddressReserve", "MemCreate", "MemMap", "MemSetAccess", "MemUnmap", "MemRelease")
	} else {
		kinds = append(kinds, "MemAlloc", "MemFree")
	}
	stride := testlevel.Choose(1, 5)
	if testlevel.Race {
		stride = max(stride, 3)
	}
	for _, kind := range kinds {
		require.NotZero(t, clean.f.Calls(kind), "the program does not use %s", kind)
		for _, err := range []error{errInjected, fmt.Errorf("%w: %w", errInjected, cupool.ErrOutOfMemory)} {
			for n := 1; n <= clean.f.Calls(kind)+2; n += stride {
				e.faulty(t, d, fmt.Sprintf("%s %d", kind, n), func(f *Failing) { f.FailNth(kind, n, err) })
			}
			e.faulty(t, d, kind+" always", func(f *Failing) { f.FailAlways(kind, err) })
		}
	}
	e.faulty(t, d, "everything", func(f *Failing) { f.FailAlways("", errInjected) })
}

// testFailingPairs makes two calls of the program fail.
func testFailingPairs(t *testing.T, e *env) {
	d := e.open(t)
	defer func() { require.NoError(t, d.Close()) }()
	n := e.faulty(t, d, "clean", func(*Failing) {}).f.Calls("")
	c := choices(seed(t), 0)
	for range scaled(150) {
		i, j := 1+c.IntN(n), 1+c.IntN(10)
		e.faulty(t, d, fmt.Sprintf("calls %d and %d", i, i+j), func(f *Failing) {
			f.FailNth("", i, errInjected)
			f.FailNth("", i+j, errInjected)
		})
	}
}

// testQuarantine: a block whose event fails is not reused, not lost, and
// comes back once events work again.
func testQuarantine(t *testing.T, e *env) {
	for _, kind := range []string{"NewEvent", "RecordEvent", "QueryEvent"} {
		t.Run(kind, func(t *testing.T) {
			f := NewFailing(nil)
			r := e.rigOn(t, f.over, unlimited)
			s, u := r.stream(), r.stream()
			var live []cupool.Block
			b := r.alloc(5000, s)
			f.FailAlways(kind, errInjected)
			require.NoError(t, r.FreeOn(b, u))
			for range 5 {
				n, err := r.ProcessDeferred()
				require.ErrorIs(t, err, errInjected)
				require.Zero(t, n)
			}
			st := r.Stats()
			require.EqualValues(t, 1, st.BlocksPending)
			require.NotZero(t, r.root.Stats().EventFailures, "a pool's streams are the root's")
			for range 1000 {
				live = append(live, r.alloc(5000, s))
				require.NotEqual(t, b.Ptr(), live[len(live)-1].Ptr(), "a quarantined block was handed out")
			}
			require.ErrorIs(t, r.Free(b), cupool.ErrDoubleFree)
			require.NoError(t, r.Check())
			f.Heal()
			freed := 0
			for range 3 {
				n, err := r.ProcessDeferred()
				require.NoError(t, err)
				require.NoError(t, r.device.SyncStream(u.Handle()))
				freed += n
			}
			require.Equal(t, 1, freed)
			again := r.alloc(5000, s)
			require.Equal(t, b.Ptr(), again.Ptr())
			r.free(append(live, again)...)
		})
	}
	t.Run("under_pressure", func(t *testing.T) {
		f := NewFailing(nil)
		r := e.rigOn(t, f.over, limited(1))
		u := r.stream()
		b := r.alloc(r.whole(), nil)
		f.FailAlways("RecordEvent", errInjected)
		require.NoError(t, r.FreeOn(b, u))
		_, err := r.Alloc(r.whole(), nil)
		r.oomOf(err, r.whole())
		f.Heal()
		again := r.alloc(r.whole(), nil)
		require.Equal(t, b.Ptr(), again.Ptr())
		f.FailAlways("SyncEvent", errInjected)
		f.FailAlways("QueryEvent", errInjected)
		require.NoError(t, r.FreeOn(again, u))
		_, err = r.Alloc(r.whole(), nil)
		r.oomOf(err, r.whole())
		require.NoError(t, u.Sync(), "the stream itself still says when it is done")
		r.free(r.alloc(r.whole(), nil))
		f.Heal()
	})
}

// testLost: the first call that says the device is lost ends everything,
// also for sizes that need no device; books and frees go on.
func testLost(t *testing.T, e *env) {
	lost := fmt.Errorf("%w: %w", errInjected, cupool.ErrDeviceLost)
	for _, kind := range []string{"MemAlloc", "MemCreate", "NewStream", "SyncStream", "RecordEvent", "Copy", "Memset", "CopyIn", "CopyOut", "StreamWaitEvent", "MemFree", "MemUnmap"} {
		t.Run(kind, func(t *testing.T) {
			f := NewFailing(nil)
			r := e.rigOn(t, f.over)
			if virtual := kind == "MemCreate" || kind == "MemUnmap"; virtual != r.vmm() && (virtual || kind == "MemAlloc" || kind == "MemFree") {
				t.Skip("not called with this backing")
			}
			s := r.stream()
			warm(r, 5000)
			cached, b := r.alloc(5000, nil), r.alloc(9000, nil)
			r.free(cached, r.alloc(r.whole(), s))
			f.FailNth(kind, 1, lost)
			for what, call := range map[string]func() error{
				"MemAlloc":        func() error { return second(r.Alloc(2*r.whole(), nil)) },
				"MemCreate":       func() error { return second(r.Alloc(2*r.whole(), nil)) },
				"NewStream":       func() error { return second(r.NewStream()) },
				"SyncStream":      s.Sync,
				"RecordEvent":     func() error { return second(s.Record()) },
				"StreamWaitEvent": func() error { return r.DefaultStream().WaitStream(s) },
				"Copy":            func() error { return s.Copy(b.Ptr(), b.Ptr(), 8) },
				"CopyIn":          func() error { return s.CopyIn(b.Ptr(), make([]byte, 8)) },
				"CopyOut":         func() error { return s.CopyOut(make([]byte, 8), b.Ptr()) },
				"Memset":          func() error { return s.Memset(b.Ptr(), 1, 8) },
				"MemFree":         r.EmptyCache,
				"MemUnmap":        r.EmptyCache,
			} {
				if what == kind {
					require.ErrorIs(t, call(), cupool.ErrDeviceLost)
				}
			}
			for _, size := range []int64{5000, 9000, 512, 3 * mib, r.whole()} {
				for range 3 {
					_, err := r.Alloc(size, nil)
					require.ErrorIs(t, err, cupool.ErrDeviceLost, "%d", size)
					require.ErrorIs(t, err, errInjected, "the first reason is kept")
				}
				_, err := r.Alloc(size, s)
				require.ErrorIs(t, err, cupool.ErrDeviceLost)
				require.ErrorIs(t, r.Reserve(size, nil), cupool.ErrDeviceLost)
			}
			require.NoError(t, r.Check())
			r.free(b)
			require.ErrorIs(t, r.Free(b), cupool.ErrDoubleFree)
			require.Zero(t, r.Stats().LiveBytes)
		})
	}
}
