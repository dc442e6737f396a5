package trace

import (
	"fmt"
	"io"

	"github.com/cupool/cupool/internal/pickle"
)

// PyTorch's memory snapshots.
//
// torch.cuda.memory._dump_snapshot pickles a dictionary of plain values
// whose "device_traces" is a list for each device of what its allocator did,
// oldest first: dictionaries with "action", "addr", "size" (bytes as
// requested), "stream" (the stream's handle, 0 for the default one) and
// more. The program's own events are "alloc" and "free_requested";
// "free_completed" follows when no stream uses the block any more. The list
// is a ring: what happened before its first entry is not known, and blocks
// that were allocated then are not part of the trace.

// readSnapshot reads the events of the device that has most of them.
func readSnapshot(r io.Reader, name string) (*Trace, error) {
	fail := func(event int, format string, args ...any) error {
		return &ParseError{File: name, Event: event, Reason: fmt.Sprintf(format, args...)}
	}
	v, _, err := pickle.Read(r, "device_traces", "action", "addr", "size", "stream")
	if err != nil {
		return nil, &ParseError{File: name, Event: -1, Reason: err.Error(), Err: err}
	}
	root, ok := v.(*pickle.Dict)
	if !ok {
		return nil, fail(-1, "the pickle is not a memory snapshot: it holds no dictionary")
	}
	devices, ok := root.Get("device_traces").(*pickle.List)
	if !ok {
		return nil, fail(-1, "the pickle is not a memory snapshot: it has no device_traces")
	}
	var entries []any
	for _, d := range devices.Items {
		l, ok := d.(*pickle.List)
		if !ok {
			return nil, fail(-1, "device_traces holds something that is not a list")
		}
		if len(l.Items) > len(entries) {
			entries = l.Items
		}
	}
	if len(entries) == 0 {
		return nil, fail(-1, "the snapshot has no events: its history was not recorded (torch.cuda.memory._record_memory_history)")
	}
	b := newBuilder(name)
	for i, e := range entries {
		if reason := b.entry(e); reason != "" {
			return nil, fail(i, "%s", reason)
		}
	}
	return b.finish(), nil
}

// entry adds one entry of a device's trace.
func (b *builder) entry(v any) string {
	e, ok := v.(*pickle.Dict)
	if !ok {
		return "the entry is not a dictionary"
	}
	action, ok := e.Get("action").(string)
	if !ok {
		return "the entry has no action"
	}
	switch action {
	case "alloc", "free_requested", "free_completed":
	case "oom":
		b.t.Failed++
		return ""
	default:
		return "" // what the allocator did for itself
	}
	addr, ok := e.Get("addr").(int64)
	if !ok {
		return action + " has no addr"
	}
	if action == "alloc" {
		size, ok := e.Get("size").(int64)
		if !ok {
			return "alloc has no size"
		}
		stream, ok := e.Get("stream").(int64)
		if !ok {
			return "alloc has no stream"
		}
		return b.alloc(uint64(addr), size, stream)
	}
	switch {
	case b.blocks[uint64(addr)].live:
		// A free_completed gets here when the program chose not to record
		// free_requested (skip_actions).
		return b.free(uint64(addr))
	case action == "free_requested":
		b.t.Skipped++
	}
	return "" // else the other half of a free_requested
}
