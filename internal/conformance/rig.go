package conformance

import (
	"errors"
	"fmt"
	"regexp"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

const (
	kib = int64(1) << 10
	mib = int64(1) << 20
)

// rig is one allocator under test with its device.
type rig struct {
	*cupool.Pool
	root   *cupool.Pool // made by New; most often the same
	t      *testing.T
	env    *env
	device cupool.Driver // as opened
	cfg    cupool.Config // with defaults where sizes matter
	busy   []func()      // releases of what is still busy
}

// rig opens a device and an allocator over it. At the end of the test the
// books are checked and the allocator, which must not have leaks then unless
// the test closed it, is closed.
func (e *env) rig(t *testing.T, change ...func(*cupool.Config)) *rig {
	t.Helper()
	return e.rigOn(t, nil, change...)
}

// rigOn is rig with something between allocator and device.
func (e *env) rigOn(t *testing.T, wrap func(cupool.Driver) cupool.Driver, change ...func(*cupool.Config)) *rig {
	t.Helper()
	r := &rig{t: t, env: e, cfg: e.cfg, device: e.open(t)}
	r.cfg.Driver = r.device
	if wrap != nil {
		r.cfg.Driver = wrap(r.device)
	}
	for _, f := range change {
		f(&r.cfg)
	}
	c, err := cupool.New(r.cfg)
	require.NoError(t, err)
	r.Pool, r.root = c, c
	if wrap := e.opt.Wrap; wrap != nil {
		r.Pool, err = wrap(c)
		require.NoError(t, err)
	}
	r.setDefaults()
	t.Cleanup(r.finish)
	return r
}

func (r *rig) finish() {
	r.release()
	if r.t.Skipped() || r.t.Failed() {
		_, _, _ = r.Close(), r.root.Close(), r.device.Close()
		return
	}
	r.closeAll()
	if d, ok := r.device.(interface{ Check() error }); ok {
		assert.NoError(r.t, d.Check())
	}
	assert.NoError(r.t, r.device.Close())
}

// closeAll closes what is not closed yet, but for the device.
func (r *rig) closeAll() {
	for _, c := range []*cupool.Pool{r.Pool, r.root} {
		assert.NoError(r.t, c.Check())
		if err := c.Close(); !errors.Is(err, cupool.ErrClosed) {
			assert.NoError(r.t, err)
		}
		assert.NoError(r.t, c.Check(), "after Close")
	}
}

// setDefaults fills in the sizes that a Config leaves to the allocator.
func (r *rig) setDefaults() {
	c := &r.cfg
	for _, f := range []struct {
		p   *int64
		def int64
	}{
		{&c.SmallLimit, 1 * mib}, {&c.SmallSegment, 2 * mib}, {&c.LargeSegment, 20 * mib}, {&c.LargeLimit, 10 * mib},
		{&c.SegmentRounding, 2 * mib}, {&c.MinSplit, 1*mib + 512}, {&c.MagazineBytes, 256 * mib}, {&c.MinBlock, 512},
	} {
		if *f.p == 0 {
			*f.p = f.def
		}
	}
}

// roundUp returns a size rounded up to a multiple of a unit.
func roundUp(size, unit int64) int64 { return (size + unit - 1) / unit * unit }

// unlimited takes the limits out of the way.
func unlimited(c *cupool.Config) { c.Limit, c.Fraction = 0, 0 }

// limited allows n segments of r.whole() bytes, whatever the Config says.
func limited(n int64) func(*cupool.Config) {
	return func(c *cupool.Config) { c.Limit, c.Fraction = n*wholeOf(c), 0 }
}

// granularityOf returns that of the virtual memory that a Config leads to,
// or 0 for segments.
func granularityOf(c *cupool.Config) int64 {
	if vm, ok := c.Driver.(cupool.VirtualMemory); ok && c.Backing != cupool.BackingSegments {
		return vm.VMMGranularity()
	}
	return 0
}

// wholeOf returns a size that gets a segment of its own without a rest, or
// whole chunks of virtual memory.
func wholeOf(c *cupool.Config) int64 {
	unit, from := c.SegmentRounding, c.LargeLimit
	if g := granularityOf(c); g > 0 {
		unit = g
	}
	if unit == 0 {
		unit = 2 * mib
	}
	if from == 0 {
		from = 10 * mib
	}
	from = max(from, c.SmallLimit+1)
	return (from + unit - 1) / unit * unit
}

func (r *rig) whole() int64 { return wholeOf(&r.cfg) }

// vmm reports whether the allocator works with virtual memory.
func (r *rig) vmm() bool { return granularityOf(&r.cfg) > 0 }

// allFree matches a Layout in which nothing is taken and everything that can
// be merged is: a segment is one block; a home may have gaps.
var allFree = regexp.MustCompile(`^(\d+ (small|large): (\[Gap \w+\])*(\[Free \w+\](\[Gap \w+\])+)*(\[Free \w+\])?\n)*$`)

// wholeSegments is allFree for segments.
var wholeSegments = regexp.MustCompile(`^(\d+ (small|large): \[Free \w+\]\n)*$`)

// requireAllFree checks that everything was freed and merged.
func (r *rig) requireAllFree() {
	r.t.Helper()
	want := wholeSegments
	if r.vmm() {
		want = allFree
	}
	require.Regexp(r.t, want, r.Snapshot().Layout())
	st := r.Stats()
	require.Zero(r.t, st.LiveBytes+st.PendingBytes)
	require.Equal(r.t, st.CachedBytes, st.All.ReservedBytes.Current)
	require.NoError(r.t, r.Check())
}

// requireNothing checks that the device has everything back.
func (r *rig) requireNothing() {
	r.t.Helper()
	require.NotContains(r.t, r.Snapshot().Layout(), "Free")
	require.Zero(r.t, r.Stats().All.ReservedBytes.Current)
	require.Zero(r.t, r.Stats().All.Segment.Current)
	require.NoError(r.t, r.Check())
}

func (r *rig) alloc(size int64, s *cupool.Stream) cupool.Block {
	r.t.Helper()
	b, err := r.Alloc(size, s)
	require.NoError(r.t, err)
	return b
}

func (r *rig) free(blocks ...cupool.Block) {
	r.t.Helper()
	for _, b := range blocks {
		require.NoError(r.t, r.Free(b))
	}
}

func (r *rig) stream() *cupool.Stream {
	r.t.Helper()
	s, err := r.NewStream()
	require.NoError(r.t, err)
	return s
}

// makeBusy keeps s busy until the function it returns is called, or skips
// the test.
func (r *rig) makeBusy(s *cupool.Stream) (release func()) {
	r.t.Helper()
	hook := r.env.opt.Busy
	if hook == nil {
		hook = launchBusy
	}
	f, err := hook(r.device, s)
	if err != nil {
		r.t.Skipf("no stream can be kept busy here: %v", err)
	}
	release = sync.OnceFunc(f)
	r.busy = append(r.busy, release)
	return release
}

func launchBusy(_ cupool.Driver, s *cupool.Stream) (func(), error) {
	ch := make(chan struct{})
	return func() { close(ch) }, s.Launch(func() { <-ch })
}

// release lets everything go on that is busy.
func (r *rig) release() {
	for _, f := range r.busy {
		f()
	}
	r.busy = nil
}

// state is everything that an erroneous call must leave alone.
func (r *rig) state() string {
	return fmt.Sprintf("%+v\n%s", r.Stats(), r.Snapshot().Layout())
}

// unchanged checks that what f does leaves the books alone.
func (r *rig) unchanged(f func()) {
	r.t.Helper()
	before := r.state()
	f()
	require.Equal(r.t, before, r.state(), "the call changed something")
	require.NoError(r.t, r.Check())
}

// flush empties the magazines and collects what is done, without giving
// anything back to the device.
func (r *rig) flush() {
	r.t.Helper()
	if r.cfg.Sanitize != (cupool.Sanitizers{}) { // freed blocks wait for their own stream, too
		require.NoError(r.t, r.Sync())
	}
	released, err := r.Trim(1 << 62)
	require.NoError(r.t, err)
	require.Zero(r.t, released)
}

// ownerOf returns the stream that a live block is for,
// by provoking an error that says so.
func (r *rig) ownerOf(b cupool.Block) (cupool.StreamHandle, error) {
	var e *cupool.BlockError
	if err := r.FreePtr(b.Ptr()+1, -1); !errors.As(err, &e) || !errors.Is(err, cupool.ErrInteriorPointer) {
		return 0, fmt.Errorf("freeing %v+1 gave %v, want ErrInteriorPointer", b.Ptr(), err)
	}
	return e.Stream, nil
}
