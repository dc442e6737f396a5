package snapshot

import (
	"cmp"
	"io"
	"slices"

	"github.com/cupool/cupool/internal/intern"
	"github.com/cupool/cupool/internal/pickle"
)

// WriteTorch writes snapshots as the pickle that PyTorch's tools open: the page
// https://pytorch.org/memory_viz, and python3 -m torch.cuda._memory_viz with
// trace_plot, segment_plot, trace, stats and the others. The snapshots are those of
// one allocator or of several, at about one moment; those of one Device share a
// device there. Pools have pools of their own. It fails with the error of w, and of
// nothing else.
//
// PyTorch knows fewer states, and no memory at two addresses. So this is what it
// sees:
//
//   - A live block is active_allocated, a pending one active_pending_free, a
//     cached or free one inactive.
//   - A range of virtual memory is one segment for every stretch that has
//     memory. Neither gaps nor parts of stitched blocks belong to one: a stitched
//     range is a segment of its own, and so all memory counts once. The sums of
//     total_size, of allocated_size and of active_size are the allocator's
//     reserved, live, and live and pending bytes.
//   - The allocator's segments have segment_pool_id (0, 0), those of the first
//     private pool (0, 1), and so on.
//   - Labels are user_metadata, which the page shows.
//   - Events that the page cannot follow are left out: of blocks and segments that
//     are unknown at that point, as the allocation was not sampled or the event
//     has been overwritten. A block whose allocation is unknown is allocated when
//     its segment came, or when what was there before was freed, if that is known.
//
// Read reads it back, with what PyTorch has no place for in keys of its own.
func WriteTorch(w io.Writer, of ...Snapshot) error {
	if w == nil {
		return errNoWriter
	}
	pools := flat(of)
	t := torch{Writer: pickle.NewWriter(w)}
	t.gather(pools)
	t.Dict(func() {
		t.String("segments")
		t.List(len(t.segments), func(i int) { t.segment(&t.segments[i]) })
		t.String("device_traces")
		t.List(len(t.devices), func(i int) {
			events := t.replayable(i)
			t.List(len(events), func(k int) { t.event(&events[k]) })
		})
		t.String("allocator_settings")
		t.Dict(func() { t.settings() })
		t.String("external_annotations")
		t.List(0, nil)
		t.String("pools")
		t.List(len(t.ids), func(i int) { t.pool(i, &pools[i]) })
	})
	return t.Close()
}

// torch writes one pickle.
type torch struct {
	*pickle.Writer
	stacks   intern.Stacks[Frame]
	devices  []string
	ids      []poolID
	segments []torchSegment // by device and address
	traces   [][]torchEvent // by device
}

// A poolID says which pool something belongs to.
type poolID struct {
	device int
	pool   int64 // 0: the allocator
}

type torchSegment struct {
	Segment // with memory everywhere
	poolID
}

type torchEvent struct {
	Event
	pool int64
}

// gather finds out which devices and pools there are, and what they hold.
func (t *torch) gather(pools []Snapshot) {
	private := map[int]int64{}
	devices := map[string]int{}
	var events [][][]torchEvent // by device and pool
	for _, s := range pools {
		device, ok := devices[s.Device]
		if !ok {
			device = len(t.devices)
			devices[s.Device] = device
			t.devices = append(t.devices, s.Device)
			events = append(events, nil)
		}
		id := poolID{device: device}
		if s.Pool != "" {
			private[id.device]++
			id.pool = private[id.device]
		}
		t.ids = append(t.ids, id)
		for i := range s.Segments {
			for _, seg := range s.Segments[i].mapped() {
				t.segments = append(t.segments, torchSegment{seg, id})
			}
		}
		events[device] = append(events[device], ofPool(s.Events, id.pool))
	}
	for _, lists := range events {
		t.traces = append(t.traces, merge(lists))
	}
	slices.SortStableFunc(t.segments, func(a, b torchSegment) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.Address, b.Address))
	})
}

func ofPool(events []Event, pool int64) []torchEvent {
	all := make([]torchEvent, len(events))
	for i, e := range events {
		all[i] = torchEvent{e, pool}
	}
	return all
}

// merge puts the events of pools in one list, by time. Those of each pool keep their
// order, as clocks may be set back. It halves the lists, as there may be many.
func merge(lists [][]torchEvent) []torchEvent {
	if len(lists) == 1 {
		return lists[0]
	}
	a, b := merge(lists[:len(lists)/2]), merge(lists[len(lists)/2:])
	all := make([]torchEvent, 0, len(a)+len(b))
	for _, e := range b {
		for len(a) > 0 && !a[0].Time.After(e.Time) {
			all, a = append(all, a[0]), a[1:]
		}
		all = append(all, e)
	}
	return append(all, a...)
}

// mapped returns the stretches of a segment that have memory of its own.
func (s *Segment) mapped() (list []Segment) {
	without := func(b Block) bool { return b.State == Gap || b.State == Part }
	for rest := s.Blocks; len(rest) > 0; {
		if without(rest[0]) {
			rest = rest[1:]
			continue
		}
		n := slices.IndexFunc(rest, without)
		if n < 0 {
			n = len(rest)
		}
		m := *s
		m.Address, m.Blocks = rest[0].Address, rest[:n]
		m.count()
		list = append(list, m)
		rest = rest[n:]
	}
	return list
}

// count sets the sums from the blocks.
func (s *Segment) count() {
	s.Size, s.Allocated, s.Active, s.Requested = 0, 0, 0, 0
	for _, b := range s.Blocks {
		s.Size += b.Size
		if b.State == Live {
			s.Allocated += b.Size
		}
		if b.active() {
			s.Active += b.Size
			s.Requested += b.Requested
		}
	}
}

// active says whether a program or a stream uses a block.
func (b *Block) active() bool { return b.State == Live || b.State == Pending }

func (t *torch) item(key string, n int64) {
	t.String(key)
	t.Int(n)
}

func (t *torch) number(key string, f float64) {
	t.String(key)
	t.Float(f)
}

func (t *torch) text(key, s string) {
	t.String(key)
	t.String(s)
}

func (t *torch) truth(key string, b bool) {
	t.String(key)
	t.Bool(b)
}

func (t *torch) segment(s *torchSegment) {
	t.Dict(func() {
		t.item("device", int64(s.device))
		t.item("address", int64(s.Address))
		t.item("total_size", s.Size)
		t.item("allocated_size", s.Allocated)
		t.item("active_size", s.Active)
		t.item("requested_size", s.Requested)
		t.item("stream", int64(s.Stream))
		t.item("stream_number", int64(s.Number))
		t.text("segment_type", s.Type)
		t.String("segment_pool_id")
		t.Tuple(0, s.pool)
		t.truth("is_expandable", s.Virtual)
		t.truth("is_stitched", s.Stitched)
		t.stack(nil)
		t.String("blocks")
		t.List(len(s.Blocks), func(i int) { t.block(&s.Blocks[i]) })
	})
}

// torchStates are PyTorch's names of states.
var torchStates = map[State]string{
	Live: "active_allocated", Pending: "active_pending_free", Cached: "inactive", Free: "inactive",
}

func (t *torch) block(b *Block) {
	t.Dict(func() {
		t.item("address", int64(b.Address))
		t.item("size", b.Size)
		t.item("requested_size", b.Requested)
		t.text("state", torchStates[b.State])
		if b.Weight != 0 {
			t.number("weight", b.Weight)
		}
		t.label(b.Label)
		t.stack(b.Stack)
	})
}

func (t *torch) event(e *torchEvent) {
	t.Dict(func() {
		t.text("action", string(e.Kind))
		if e.Kind == OutOfMemory {
			t.item("device_free", int64(e.Address))
		} else {
			t.item("addr", int64(e.Address))
		}
		t.item("size", e.Size)
		t.item("stream", int64(e.Stream))
		t.item("time_us", e.Time.UnixMicro())
		t.text("compile_context", "N/A")
		t.String("pool_id")
		t.Tuple(0, e.pool)
		if e.Weight != 1 {
			t.number("weight", e.Weight)
		}
		t.label(e.Label)
		t.stack(e.Stack)
	})
}

func (t *torch) label(name string) { t.text("user_metadata", name) }

// stack writes frames. Most stacks are there many times.
func (t *torch) stack(s Stack) {
	t.String("frames")
	t.Shared(stackKey(t.stacks.Number(s)), func() {
		t.List(len(s), func(i int) { t.Shared(s[i], func() { t.frame(s[i]) }) })
	})
}

// stackKey is the number of a stack.
type stackKey int

func (t *torch) frame(f Frame) {
	t.Dict(func() {
		t.text("name", f.Function)
		t.text("filename", f.File)
		t.item("line", int64(f.Line))
	})
}

// settings writes those of PyTorch's settings that have a counterpart.
func (t *torch) settings() {
	virtual := slices.ContainsFunc(t.segments, func(s torchSegment) bool { return s.Virtual })
	t.text("PYTORCH_CUDA_ALLOC_CONF", "")
	t.item("max_split_size", -1)
	t.number("garbage_collection_threshold", 0)
	t.truth("expandable_segments", virtual)
}

// pool writes the names of a pool and of its device, and what was allocated where.
func (t *torch) pool(i int, s *Snapshot) {
	t.Dict(func() {
		t.item("device", int64(t.ids[i].device))
		t.String("segment_pool_id")
		t.Tuple(0, t.ids[i].pool)
		t.text("name", s.Pool)
		t.text("device_name", s.Device)
		t.String("totals")
		t.List(len(s.Totals), func(i int) { t.total(&s.Totals[i]) })
	})
}

func (t *torch) total(x *Total) {
	t.Dict(func() {
		t.number("allocations", x.Allocations)
		t.number("bytes", x.Bytes)
		t.label(x.Label)
		t.stack(x.Stack)
	})
}
