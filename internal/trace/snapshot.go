package trace

import (
	"fmt"
	"io"
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
	v, err := unpickle(r)
	if err != nil {
		return nil, &ParseError{File: name, Event: -1, Reason: err.Error(), Err: err}
	}
	root, ok := v.(*dict)
	if !ok {
		return nil, fail(-1, "the pickle is not a memory snapshot: it holds no dictionary")
	}
	devices, ok := root.get(keyTraces).(*list)
	if !ok {
		return nil, fail(-1, "the pickle is not a memory snapshot: it has no device_traces")
	}
	var entries []any
	for _, d := range devices.items {
		l, ok := d.(*list)
		if !ok {
			return nil, fail(-1, "device_traces holds something that is not a list")
		}
		if len(l.items) > len(entries) {
			entries = l.items
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

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// entry adds one entry of a device's trace.
func (b *builder) entry(v any) string {
	e, ok := v.(*dict)
	if !ok {
		return "the entry is not a dictionary"
	}
	action, ok := e.get(keyAction).(word)
	if !ok {
		return "the entry has no action"
	}
	switch action {
	case wordAlloc, wordFreeRequested, wordFreeCompleted:
	case wordOOM:
		b.t.Failed++
		return ""
	default:
		return "" // what the allocator did for itself
	}
	addr, ok := e.get(keyAddr).(int64)
	if !ok {
		return wordNames[action] + " has no addr"
	}
	if action == wordAlloc {
		size, ok := e.get(keySize).(int64)
		if !ok {
			return "alloc has no size"
		}
		stream, ok := e.get(keyStream).(int64)
		if !ok {
			return "alloc has no stream"
		}
		return b.alloc(uint64(addr), size, stream)
	}
	switch s, _ := b.blocks.get(uint64(addr)); {
	case s.live:
		// A free_completed gets here when the program chose not to record
		// free_requested (skip_actions).
		return b.free(uint64(addr))
	case action == wordFreeRequested:
		b.t.Skipped++
	}
	return "" // else the other half of a free_requested
}
