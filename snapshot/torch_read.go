package snapshot

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cupool/cupool/internal/pickle"
)

// torchKeys are the keys that are read.
var torchKeys = []string{
	"segments", "device_traces", "pools",
	"device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "stream_number",
	"segment_type", "segment_pool_id", "is_expandable", "is_stitched", "blocks",
	"size", "state", "frames", "name", "filename", "line", "user_metadata",
	"action", "addr", "device_free", "time_us", "pool_id", "weight", "device_name", "totals", "allocations", "bytes",
}

// A value may stand in many places of a pickle, each for two bytes: a thousand lists of
// one list of a thousand would be a million blocks for some kilobytes. In a snapshot
// only stacks, their frames and strings recur. So a list of anything else is read once,
// blocks share the stacks that they share in the pickle, and what is read has at
// most mostText bytes of strings, and textFactor for each byte of the pickle.
const (
	mostText   = 1 << 20
	textFactor = 256
	mostFrames = 1 << 10 // of a stack
)

// torchReader makes snapshots of a pickle.
type torchReader struct {
	pools  map[readID]*Snapshot
	stacks map[*pickle.List]Stack
	seen   map[*pickle.List]bool // lists of anything but frames
	text   int64                 // bytes in strings, once for each different stack
	err    error                 // the first one
}

// A readID is what PyTorch calls a pool: (0, 0) is the allocator, (0, n) a
// private one, (n, 0) that of a graph.
type readID struct{ device, graph, pool int64 }

func (a readID) compare(b readID) int {
	return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.graph, b.graph), cmp.Compare(a.pool, b.pool))
}

func readTorch(r *bufio.Reader) ([]Snapshot, error) {
	v, size, err := pickle.Read(r, torchKeys...)
	if err != nil {
		var damage *pickle.Error
		if errors.As(err, &damage) {
			return nil, &FormatError{Offset: damage.Offset, Err: damage.Err}
		}
		return nil, &FormatError{Err: err}
	}
	t := torchReader{pools: map[readID]*Snapshot{}, stacks: map[*pickle.List]Stack{}, seen: map[*pickle.List]bool{}}
	if root, ok := v.(*pickle.Dict); ok {
		t.read(fields{Dict: root, t: &t})
	} else { // torch.cuda.memory_snapshot() has the segments alone
		t.each("segments", v, t.segment)
	}
	if most := mostText + textFactor*size; t.text > most {
		t.fail("the pickle", "its %d bytes repeat labels, frames and names to %d, more than %d", size, t.text, most)
	}
	return t.finish()
}

func (t *torchReader) read(root fields) {
	t.each("segments", root.Get("segments"), t.segment)
	if names := root.Get("pools"); names != nil {
		t.each("pools", names, t.named)
	}
	list, _ := root.Get("device_traces").(*pickle.List)
	if list == nil {
		return
	}
	for device, v := range list.Items {
		if t.err != nil {
			return
		}
		t.each(fmt.Sprintf("device_traces[%d]", device), v, func(e fields) { t.event(int64(device), e) })
	}
}

func (t *torchReader) fail(path, format string, args ...any) {
	if t.err == nil {
		t.err = damaged(path, format, args...)
	}
}

// each calls f for the dictionaries of a list that stands nowhere else.
func (t *torchReader) each(path string, v any, f func(fields)) {
	l, ok := v.(*pickle.List)
	switch {
	case !ok:
		t.fail(path, "there is no such list")
		return
	case len(l.Items) > 0 && t.seen[l]:
		t.fail(path, "the same list stands in another place, too")
		return
	}
	t.seen[l] = true
	t.items(path, l.Items, f)
}

// items calls f for dictionaries.
func (t *torchReader) items(path string, list []any, f func(fields)) {
	for i, v := range list {
		d, ok := v.(*pickle.Dict)
		if !ok {
			t.fail(fmt.Sprintf("%s[%d]", path, i), "it is not a dictionary")
		}
		if t.err != nil {
			return
		}
		f(fields{d, t, path, i})
	}
}

// fields is a dictionary at a place.
type fields struct {
	*pickle.Dict
	t    *torchReader
	list string
	i    int
}

func (f fields) path() string { return fmt.Sprintf("%s[%d]", f.list, f.i) }

// number returns a number that has to be there.
func (f fields) number(key string) int64 {
	n, ok := f.Get(key).(int64)
	if !ok {
		f.t.fail(f.path(), "it has no %s", key)
	}
	return n
}

// optional returns a number that not all versions write.
func (f fields) optional(key string, other int64) int64 {
	if n, ok := f.Get(key).(int64); ok {
		return n
	}
	return other
}

// text returns a string, which counts each time that it is asked for.
func (f fields) text(key string) string {
	s, _ := f.Get(key).(string)
	f.t.text += int64(len(s))
	return s
}

func (f fields) truth(key string) bool {
	b, _ := f.Get(key).(bool)
	return b
}

func (f fields) fraction(key string) float64 {
	if n, ok := f.Get(key).(float64); ok && n >= 0 && n <= math.MaxFloat64 {
		return n
	}
	return 0
}

func (f fields) id(device int64, key string) readID {
	id := readID{device: device}
	if pair, _ := f.Get(key).(pickle.Tuple); len(pair) == 2 {
		id.graph, _ = pair[0].(int64)
		id.pool, _ = pair[1].(int64)
	}
	return id
}

// pool returns the snapshot of a pool.
func (t *torchReader) pool(id readID) *Snapshot {
	s := t.pools[id]
	if s == nil {
		s = &Snapshot{Device: fmt.Sprintf("cuda:%d", id.device), Segments: []Segment{}}
		if id.graph != 0 || id.pool != 0 {
			s.Pool = fmt.Sprintf("(%d, %d)", id.graph, id.pool)
		}
		t.pools[id] = s
	}
	return s
}

// named reads the names of a pool and of its device, and what was allocated where.
func (t *torchReader) named(f fields) {
	s := t.pool(f.id(f.number("device"), "segment_pool_id"))
	s.Device, s.Pool = f.text("device_name"), f.text("name")
	if list := f.Get("totals"); list != nil {
		t.each(f.path()+".totals", list, func(f fields) {
			s.Totals = append(s.Totals, Total{t.stack(f), f.text("user_metadata"), f.fraction("allocations"), f.fraction("bytes")})
		})
	}
}

func (t *torchReader) segment(f fields) {
	seg := Segment{
		Address: Ptr(f.number("address")), Size: f.number("total_size"),
		Stream: StreamHandle(f.number("stream")), Number: uint64(f.optional("stream_number", 0)),
		Type: f.text("segment_type"), Virtual: f.truth("is_expandable"), Stitched: f.truth("is_stitched"),
	}
	seg.Blocks = t.blocksOf(f, seg.Address)
	sums := seg
	sums.count()
	seg.Allocated = f.optional("allocated_size", sums.Allocated)
	seg.Active = f.optional("active_size", sums.Active)
	seg.Requested = f.optional("requested_size", sums.Requested)
	s := t.pool(f.id(f.optional("device", 0), "segment_pool_id"))
	s.Segments = append(s.Segments, seg)
}

// readStates are the states by PyTorch's names, of all its versions.
var readStates = map[string]State{
	"active_allocated": Live, "active_pending_free": Pending, "active_awaiting_free": Pending, "inactive": Free,
}

func (t *torchReader) blocksOf(segment fields, at Ptr) (blocks []Block) {
	t.each(segment.path()+".blocks", segment.Get("blocks"), func(f fields) {
		b := Block{
			Address: Ptr(f.optional("address", int64(at))), Size: f.number("size"),
			State: readStates[f.text("state")], Label: f.text("user_metadata"), Stack: t.stack(f), Weight: f.fraction("weight"),
		}
		if b.active() {
			b.Requested = f.optional("requested_size", b.Size)
		}
		at += Ptr(b.Size)
		blocks = append(blocks, b)
	})
	return blocks
}

func (t *torchReader) event(device int64, f fields) {
	s := t.pool(f.id(device, "pool_id"))
	t.text += int64(len(s.Pool))
	e := Event{
		Number: uint64(len(s.Events) + 1), Kind: Kind(f.text("action")), Time: time.UnixMicro(f.optional("time_us", 0)).UTC(), Pool: s.Pool,
		Address: Ptr(f.optional("addr", f.optional("device_free", 0))), Size: f.number("size"), Stream: StreamHandle(f.optional("stream", 0)),
		Label: f.text("user_metadata"), Stack: t.stack(f), Weight: 1,
	}
	if w := f.fraction("weight"); w != 0 {
		e.Weight = w
	}
	s.Events = append(s.Events, e)
}

func (t *torchReader) stack(f fields) (s Stack) {
	list, ok := f.Get("frames").(*pickle.List)
	if !ok || len(list.Items) == 0 {
		return nil
	}
	if s, ok := t.stacks[list]; ok {
		return s
	}
	t.items(f.path()+".frames", list.Items[:min(len(list.Items), mostFrames)], func(f fields) {
		s = append(s, Frame{f.text("name"), f.text("filename"), int(f.optional("line", 0))})
	})
	t.stacks[list] = s
	return s
}

// finish returns the snapshots by device and pool.
func (t *torchReader) finish() (list []Snapshot, err error) {
	if len(t.pools) == 0 {
		t.pool(readID{}) // nothing was allocated
	}
	var ids []readID
	for id := range t.pools {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, readID.compare)
	for _, id := range ids {
		list = append(list, *t.pools[id])
	}
	return list, t.err
}
