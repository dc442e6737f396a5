package main

// #include <stdlib.h>
// #include "internal.h"
import "C"

import (
	"cmp"
	"encoding/json"
	"io"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/newfile"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/snapshot"
)

// text is a string of C's.
type text struct{ c *C.char }

func newText(s string) text { return text{C.CString(s)} }

func (t text) free() { C.free(pointer(t.c)) }

// texts are strings of C's, each once.
type texts map[string]text

func (t texts) of(s string) *C.char {
	x, ok := t[s]
	if !ok {
		x = newText(s)
		t[s] = x
	}
	return x.c
}

func (t texts) free() {
	for _, x := range t {
		x.free()
	}
}

// visit shows a program what pools hold.
type visit struct {
	v     *C.cupool_visitor
	texts texts
}

// stretches returns the parts of a segment that have memory of their own, as WriteTorch has them.
func stretches(s *snapshot.Segment) (list [][]snapshot.Block) {
	without := func(b snapshot.Block) bool { return b.State == snapshot.Gap || b.State == snapshot.Part }
	for rest := s.Blocks; len(rest) > 0; {
		n := slices.IndexFunc(rest, without)
		if n < 0 {
			n = len(rest)
		}
		if n > 0 {
			list = append(list, rest[:n])
		}
		rest = rest[min(n+1, len(rest)):]
	}
	return list
}

// segment shows a stretch of a segment, and reports whether to go on.
func (x *visit) segment(id poolID, s *snapshot.Segment, blocks []snapshot.Block) bool {
	if x.v.segment != nil {
		seg := C.cupool_segment{pool: id.c(), is_large: boolean(s.Type == "large"), is_virtual: boolean(s.Virtual), blocks: C.size_t(len(blocks))}
		put(&seg.address, blocks[0].Address)
		put(&seg.stream, s.Stream)
		for _, b := range blocks {
			seg.size += C.size_t(b.Size)
			switch b.State {
			case snapshot.Live:
				seg.allocated += C.size_t(b.Size)
				fallthrough
			case snapshot.Pending:
				seg.active += C.size_t(b.Size)
				seg.requested += C.size_t(b.Requested)
			}
		}
		if C.cupool_call_visit_segment(x.v, &seg) != 0 {
			return false
		}
	}
	if x.v.block == nil {
		return true
	}
	for _, b := range blocks {
		e := C.cupool_block_entry{size: C.size_t(b.Size), requested: C.size_t(b.Requested), state: C.CUPOOL_BLOCK_FREE, label: x.texts.of(b.Label)}
		put(&e.address, b.Address)
		switch b.State {
		case snapshot.Live:
			e.state = C.CUPOOL_BLOCK_LIVE
		case snapshot.Pending:
			e.state = C.CUPOOL_BLOCK_PENDING
		}
		if C.cupool_call_visit_block(x.v, &e) != 0 {
			return false
		}
	}
	return true
}

// event is one of a pool.
type event struct {
	snapshot.Event
	of poolID
}

// events shows events of pools, the oldest first.
func (x *visit) events(pools []member) {
	var all []event
	for _, m := range pools {
		for _, e := range poolaccess.Of(m.made).Events(0) {
			all = append(all, event{e, m.id})
		}
	}
	slices.SortFunc(all, func(a, b event) int { return cmp.Compare(a.Number, b.Number) })
	for _, e := range all {
		c := C.cupool_event{action: x.texts.of(string(e.Kind)), pool: e.of.c(), size: C.size_t(e.Size), time: C.int64_t(e.Time.UnixNano()),
			label: x.texts.of(e.Label), weight: C.double(e.Weight)}
		put(&c.address, e.Address)
		put(&c.stream, e.Stream)
		if C.cupool_call_visit_event(x.v, &c) != 0 {
			return
		}
	}
}

//export cupoolGoSnapshot
func cupoolGoSnapshot(t *C.thread, ordinal C.int, id C.cupool_pool_id, v *C.cupool_visitor) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		list, err := g.chosen(idOf(id))
		if err != nil {
			return err
		}
		x := visit{v: v, texts: texts{}}
		defer x.texts.free()
		for _, m := range list {
			s := poolaccess.Of(m.made).Snapshot()
			for i := range s.Segments {
				for _, blocks := range stretches(&s.Segments[i]) {
					if !x.segment(m.id, &s.Segments[i], blocks) {
						return nil
					}
				}
			}
		}
		if v.event != nil {
			x.events(list)
		}
		return nil
	})
}

// takenOf returns the snapshots of a device, or of all that are open.
func takenOf(ordinal C.int) ([]cupool.Snapshot, error) {
	if ordinal == -1 {
		list := []cupool.Snapshot{} // in JSON nil is no list
		each(func(g *gpu) { list = append(list, g.root.Snapshot()) })
		return list, nil
	}
	g, err := of(ordinal)
	if err != nil {
		return nil, err
	}
	return []cupool.Snapshot{g.root.Snapshot()}, nil
}

//export cupoolGoWrite
func cupoolGoWrite(t *C.thread, ordinal, format C.int, path *C.char) (st C.cupool_status) {
	defer caught(t, &st)
	list, err := takenOf(ordinal)
	if err != nil {
		return done(t, err)
	}
	var content func(w io.Writer) error
	switch format {
	case C.CUPOOL_FILE_TORCH:
		content = func(w io.Writer) error { return snapshot.WriteTorch(w, list...) }
	case C.CUPOOL_FILE_PPROF:
		content = func(w io.Writer) error { return snapshot.WriteProfile(w, list...) }
	case C.CUPOOL_FILE_JSON:
		content = func(w io.Writer) error { return json.NewEncoder(w).Encode(list) }
	default:
		return done(t, faultf(C.CUPOOL_ERROR_INVALID, "there is no format %d of a file", int(format)))
	}
	if err := newfile.Write(C.GoString(path), content); err != nil {
		return done(t, faultf(C.CUPOOL_ERROR_IO, "%v", err))
	}
	return C.CUPOOL_OK
}
