package model

import (
	"errors"

	"github.com/cupool/cupool"
)

// A witness has copies of what blocks held, on a device that shows its memory by
// copies alone. The device makes them in the order of the streams that read the
// blocks, which may be freed meanwhile: a copy shows whether their memory was reused
// too early. It belongs to one runner.
type witness struct {
	below cupool.Driver // not watched, and its memory is not the allocator's
	at    cupool.Ptr
	seen  []sight
	used  map[*Stream]bool
}

// sight is a copy of a part of a block.
type sight struct {
	b     *Block
	part  piece
	value byte
}

const (
	partBytes = 64
	sights    = 512
)

func newWitness(below cupool.Driver) (*witness, error) {
	at, err := below.MemAlloc(sights * partBytes)
	return &witness{below: below, at: at, used: map[*Stream]bool{}}, err
}

// look has a stream copy parts of a block.
func (r *runner) look(b *Block, s *Stream) {
	w := r.witness
	parts := r.parts(b)
	if len(w.seen)+len(parts) > sights {
		r.compareSights()
	}
	r.use(b, s, "Copy", func() error {
		value := r.content(b)
		if value == 0 {
			return nil
		}
		w.used[s] = true
		for _, x := range parts {
			if err := s.Copy(w.at+cupool.Ptr(len(w.seen)*partBytes), b.Ptr()+cupool.Ptr(x.lo), x.hi-x.lo); err != nil {
				return err
			}
			w.seen = append(w.seen, sight{b, x, value})
		}
		return nil
	})
}

// compareSights waits for the copies and reports those that are wrong.
func (r *runner) compareSights() {
	w := r.witness
	for s := range w.used {
		if err := r.root.SyncStream(s.Stream); err != nil && !errors.Is(err, cupool.ErrClosed) { // which waits
			r.fail("errors: Sync: %v", err)
		}
	}
	w.compare(r.Model)
}

// compare looks at copies that are done.
func (w *witness) compare(m *Model) {
	got := make([]byte, len(w.seen)*partBytes)
	if err := w.below.CopyOut(got, w.at, 0); err != nil {
		m.fail("errors: CopyOut: %v", err)
	}
	for i, x := range w.seen {
		for j, v := range got[i*partBytes:][:x.part.hi-x.part.lo] {
			if v != x.value {
				m.fail("contents: byte %d of %v was %#x and not %#x", x.part.lo+int64(j), x.b, v, x.value)
				break
			}
		}
	}
	w.seen = w.seen[:0]
	clear(w.used)
}

// close looks at the rest of the copies, when all work is done.
func (w *witness) close(m *Model) {
	w.compare(m)
	if err := w.below.MemFree(w.at); err != nil {
		m.fail("errors: MemFree: %v", err)
	}
}
