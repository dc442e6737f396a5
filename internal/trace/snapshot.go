package trace

import (
	"bufio"
	"fmt"
	"io"
	"math/big"

	ogorek "github.com/kisielk/og-rek"
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

// pyDict is a dictionary as the pickle library returns it.
type pyDict = map[any]any

// readSnapshot reads the events of the device that has most of them.
func readSnapshot(r io.Reader, name string) (*Trace, error) {
	fail := func(event int, format string, args ...any) error {
		return &ParseError{File: name, Event: event, Reason: fmt.Sprintf(format, args...)}
	}
	in := &counted{Reader: r}
	buf := bufio.NewReaderSize(in, bufferSize) // the decoder takes it as it is
	v, err := ogorek.NewDecoder(buf).Decode()
	if err != nil {
		return nil, fail(-1, "damaged pickle at byte %d: %v", in.n-int64(buf.Buffered()), err)
	}
	root, ok := v.(pyDict)
	if !ok {
		return nil, fail(-1, "the pickle is not a memory snapshot: it holds no dictionary")
	}
	devices, ok := root["device_traces"].([]any)
	if !ok {
		return nil, fail(-1, "the pickle is not a memory snapshot: it has no device_traces")
	}
	var entries []any
	for _, d := range devices {
		list, ok := d.([]any)
		if !ok {
			return nil, fail(-1, "device_traces holds something that is not a list")
		}
		if len(list) > len(entries) {
			entries = list
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
	e, ok := v.(pyDict)
	if !ok {
		return "the entry is not a dictionary"
	}
	action, ok := e["action"].(string)
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
	addr, ok := integer(e["addr"])
	if !ok {
		return action + " has no addr"
	}
	if action == "alloc" {
		size, ok := integer(e["size"])
		if !ok {
			return "alloc has no size"
		}
		stream, ok := integer(e["stream"])
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
	case action == "free_requested":
		b.t.Skipped++
	}
	return "" // else the other half of a free_requested
}

// integer returns a whole number of a pickle. Those of more than 31 bits
// come as big ones.
func integer(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case *big.Int:
		return n.Int64(), n.IsInt64()
	}
	return 0, false
}
