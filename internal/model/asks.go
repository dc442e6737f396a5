package model

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cupool/cupool"
)

// Calls that ask pools and streams, or set how they work.

// setSoftLimit sets the soft limit of a pool, or what cannot be set.
func (r *runner) setSoftLimit() {
	p := r.pickPool()
	bytes := []int64{0, 1, r.device.Capacity / 32, r.device.Capacity / 4, -1}[r.n(5)]
	before := p.Stats().All.ReservedBytes.Current
	err := p.SetSoftLimit(bytes)
	want := r.allow(p)
	if p.retired {
		want.add(false, cupool.ErrClosed)
	}
	if bytes < 0 {
		want.add(true, cupool.ErrInvalidSize)
		err := p.Configure("divisions:3")
		refused := r.allow(p)
		refused.add(true, cupool.ErrInvalidConfig, cupool.ErrNotSupported) // the latter of private pools
		r.judge("Configure", err, refused)
	}
	if r.judge("SetSoftLimit", err, want); err != nil || !r.exact {
		return
	}
	if got := p.Config().SoftLimit; got != bytes {
		r.fail("books: the soft limit of %s is %d, it was set to %d", p.name, got, bytes)
	}
	if after := p.Stats().All.ReservedBytes.Current; after > before {
		r.fail("books: SetSoftLimit has reserved %d bytes", after-before)
	}
}

// history starts or stops the history. Each event is recorded where the result has to
// be the same again.
func (r *runner) history() {
	p, how := r.pickPool(), r.n(4)
	cfg := cupool.History{Events: 100, SampleBytes: 1}
	switch {
	case how == 0:
		p.StopHistory()
		if r.exact && p.Config().History != nil {
			r.fail("books: %s records after StopHistory", p.name)
		}
		return
	case how == 1:
		cfg.Events = -1
	case how == 2 && !r.exact:
		cfg.SampleBytes = 0
	}
	err := p.StartHistory(cfg)
	want := r.allow(p)
	if p.retired {
		want.add(false, cupool.ErrClosed)
	}
	if how == 1 {
		want.add(true, cupool.ErrInvalidConfig)
	}
	if r.judge("StartHistory", err, want); err == nil && r.exact && p.Config().History == nil {
		r.fail("books: %s records nothing after StartHistory", p.name)
	}
}

// lookAtPool asks a pool what does not change it, or sets its peaks back.
func (r *runner) lookAtPool() {
	p := r.pickPool()
	switch r.n(5) {
	case 0:
		r.lookAtLeaks(p)
	case 1:
		r.lookAtPools(p)
	case 2:
		err := p.Err()
		want := r.allow(p)
		r.mu.Lock()
		r.sleepsLocked(want, p)
		if p.retired {
			want.add(false, cupool.ErrClosed)
		}
		r.mu.Unlock()
		r.judge("Err", err, want)
	case 3:
		p.ResetPeak()
		if st := p.Stats().All.ReservedBytes; r.exact && st.Peak != st.Current {
			r.fail("books: after ResetPeak %s has a peak of %d bytes, and %d now", p.name, st.Peak, st.Current)
		}
	default:
		name := p.name
		if p == r.root {
			name = ""
		}
		if got := p.Name(); got != name {
			r.fail("books: Name of %s is %q", p.name, got)
		}
		if p.Driver() != cupool.Driver(r.d) || p.DefaultStream() != r.first.Stream {
			r.fail("books: %s has another device, or another default stream", p.name)
		}
		if first, last := p.FirstOOM(), p.LastOOM(); r.exact && (first == nil) != (last == nil) {
			r.fail("errors: the first out of memory is %v, the last one %v", first, last)
		}
	}
}

// isLastOOM compares the out of memory that a call has returned with what is told of it.
func (r *runner) isLastOOM(err error) {
	var e *cupool.OOMError
	if got := r.root.LastOOM(); errors.As(err, &e) && r.exact && got != e && r.opt.Break == nil {
		r.fail("errors: LastOOM is %v after %v", got, err)
	}
}

// lookAtLeaks compares Leaks with what is live.
func (r *runner) lookAtLeaks(p *Pool) {
	e := p.Leaks()
	if !r.exact || p.state != open {
		return
	}
	pools := []*Pool{p}
	if p == r.root {
		pools = r.openPools()
	}
	var want, later int64
	for _, p := range pools {
		want += p.live + r.plansLocked(p).Arenas
		later += int64(p.later)
	}
	got := int64(0)
	if e != nil {
		got = int64(len(e.Leaks))
	}
	if got < want || got > want+later {
		r.fail("books: Leaks of %s has %d blocks, %d are live", p.name, got, want)
	}
}

// lookAtPools compares Pools with the pools that are open.
func (r *runner) lookAtPools(p *Pool) {
	got := p.Pools()
	if !r.exact {
		return
	}
	for _, o := range r.openPools() {
		if o != r.root && !o.retired && !slices.Contains(got, o.c) {
			r.fail("books: Pools lacks %s", o.name)
		}
	}
	for _, c := range got {
		if !slices.ContainsFunc(r.openPools(), func(o *Pool) bool { return o.c == c }) {
			r.fail("books: Pools has %s, which is closed", c.Name())
		}
	}
}

// syncAll waits for the work of all streams.
func (r *runner) syncAll() {
	p := r.pickPool()
	r.mu.Lock()
	uses := make([]use, 0, len(r.streams))
	for _, s := range r.streams {
		uses = append(uses, r.d.lastOf(s.s))
	}
	r.mu.Unlock()
	err := p.Sync()
	want := r.allow(p)
	r.mu.Lock()
	if p.retired {
		want.add(false, cupool.ErrClosed)
	}
	r.mu.Unlock()
	if r.judge("Sync", err, want); err != nil {
		return
	}
	r.mu.Lock()
	closes := r.root.tried // what a stream is given meanwhile may be left undone
	r.mu.Unlock()
	for _, u := range uses {
		if !closes && !r.d.over(u) {
			r.fail("order: Sync of %s has returned, and work %d of stream %d is not done", p.name, u.n, u.s.number)
		}
	}
}

// adoptStream makes a stream without the allocator and has it adopted, or has one
// adopted that the allocator knows.
func (r *runner) adoptStream() {
	how := r.n(4)
	if how == 0 {
		got, err := r.root.AdoptStream(0)
		if r.judge("AdoptStream", err, r.allow(r.root)); err == nil && got != r.first.Stream {
			r.fail("books: AdoptStream of the default stream's handle is another stream")
		}
		return
	}
	r.mu.Lock()
	n := len(r.streams)
	r.mu.Unlock()
	if n > 24 {
		return
	}
	h, err := r.d.NewStream()
	if err != nil {
		r.fail("errors: the device: %v", err)
		return
	}
	s := &Stream{s: r.d.stream(h), adopted: true}
	s.Stream, err = r.pickPool().AdoptStream(h)
	if err == nil {
		if again, e := r.root.AdoptStream(h); e == nil && again != s.Stream {
			r.fail("books: the handle of stream %d was adopted as another stream", s.s.number)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.streams = append(r.streams, s)
		return
	}
	want := r.allow(r.root)
	want.add(false, cupool.ErrClosed) // the pool
	r.judge("AdoptStream", err, want)
	if err := r.d.DestroyStream(h); err != nil {
		r.fail("errors: the device: %v", err)
	}
}

// destroyAdopted destroys a stream that was adopted, after its Close.
func (w *world) destroyAdopted(s *Stream) {
	if !s.adopted {
		return
	}
	if err := w.d.DestroyStream(s.Handle()); err != nil {
		w.failLocked("errors: the device: %v", err)
	}
}

// lookAtStream asks for a stream, or waits for it until a context is done.
func (r *runner) lookAtStream() {
	s, how := r.pickStream(), r.n(4)
	if s.Pool() != r.root.c || s.Captured() {
		r.fail("books: stream %d is of another allocator, or captured", s.s.number)
	}
	if was, is := r.isOpen(&s.state), s.Closed(); r.exact && was == is && r.root.state == open {
		r.fail("books: Closed of stream %d is %v", s.s.number, is)
	}
	ctx := cancelled
	switch {
	case how == 0:
	case r.d.sim == nil || !r.device.ManualEvents:
		ctx = context.Background()
	case !r.exact: // another goroutine may complete the work, which asking does not
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
	}
	last := r.d.lastOf(s.s)
	err := s.SyncContext(ctx)
	want := r.onStream(s)
	if ctx != context.Background() {
		want.add(false, context.Canceled, context.DeadlineExceeded)
	}
	if r.judge("SyncContext", err, want); err == nil && !r.d.over(last) {
		r.fail("order: SyncContext of stream %d has returned, and its work %d is not done", s.s.number, last.n)
	}
}

// copied is the most bytes that are copied from or to the computer's memory.
const copied = 128 * kib

// copyInOrOut has a block written from the computer's memory, or read to there, by its
// own stream.
func (r *runner) copyInOrOut() {
	b, how := r.pickBlock(), r.n(2)
	if b == nil || b.Size() > copied {
		return
	}
	s := r.owner(b)
	data := make([]byte, b.Size())
	if how == 0 {
		if !r.afterReaders(b, s) {
			return
		}
		value := r.fresh(b)
		fill(data, value)
		r.wrote(b, value, s, r.use(b, s, "CopyIn", func() error { r.content(b); return s.CopyIn(b.Ptr(), data) }))
		return
	}
	var value byte
	ok := r.use(b, s, "CopyOut", func() error { value = r.content(b); return s.CopyOut(data, b.Ptr()) })
	if ok {
		r.sees(b, value, data)
	}
}

func fill(data []byte, value byte) {
	for i := range data {
		data[i] = value
	}
}

// sees compares what was read of a block, up to its end, with what it holds, 0 when that
// is not known, as far as it was written.
func (r *runner) sees(b *Block, value byte, data []byte) {
	if value == 0 {
		return
	}
	from := b.Size() - int64(len(data))
	for _, x := range r.parts(b) {
		for i := max(x.lo, from); i < x.hi; i++ {
			if v := data[i-from]; v != value {
				r.fail("contents: byte %d of %v was %#x and not %#x", i, b, v, value)
				return
			}
		}
	}
}
