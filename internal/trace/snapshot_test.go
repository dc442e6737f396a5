package trace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/pickle"
)

const recorded = "../../testdata/traces"

// What PyTorch wrote, without its Python stacks.
func TestSnapshots(t *testing.T) {
	for _, name := range []string{"torch_default.pickle.gz", "torch_expandable.pickle.gz"} {
		tr, err := ReadFile(filepath.Join(recorded, name))
		require.NoError(t, err)
		require.EqualValues(t, 81687240, tr.PeakRequested)
		require.Equal(t, 201, tr.Blocks)
		require.Len(t, tr.Events, 201+178)
		require.Len(t, tr.Streams, 2)
		require.Equal(t, 1, tr.Failed)
		require.Zero(t, tr.Skipped)
	}
}

type (
	entries = []any
	pyDict  = map[string]any
)

func entry(action string, fields ...any) pyDict {
	e := pyDict{"action": action}
	for i := 0; i < len(fields); i += 2 {
		e[fields[i].(string)] = fields[i+1]
	}
	return e
}

func pyAlloc(addr, size any) pyDict { return entry("alloc", "addr", addr, "size", size, "stream", 0) }
func pyFree(addr any) pyDict        { return entry("free_requested", "addr", addr) }
func pyDone(addr any) pyDict        { return entry("free_completed", "addr", addr) }

// pickled writes a snapshot.
func pickled(t testing.TB, root any) []byte {
	var out bytes.Buffer
	w := pickle.NewWriter(&out)
	var write func(v any)
	write = func(v any) {
		switch v := v.(type) {
		case string:
			w.String(v)
		case int:
			w.Int(int64(v))
		case entries:
			w.List(len(v), func(i int) { write(v[i]) })
		case pyDict:
			w.Dict(func() {
				for key, value := range v {
					w.String(key)
					write(value)
				}
			})
		}
	}
	write(root)
	require.NoError(t, w.Close())
	return out.Bytes()
}

func snapshot(devices ...any) pyDict {
	return pyDict{"segments": entries{}, "device_traces": entries(devices)}
}

func TestSnapshotEvents(t *testing.T) {
	const high = 139987085426688 // more than 31 bits
	data := pickled(t, snapshot(entries{}, entries{pyAlloc(1, 1)}, entries{
		pyFree(high + 512),                    // from before the recording
		pyDone(high + 512),                    // its other half
		entry("segment_alloc", "addr", high),  // the allocator's own
		pyAlloc(high, 1000),                   //
		pyAlloc(high+1024, 1<<33),             //
		pyFree(high),                          //
		entry("oom", "size", 1),               //
		pyDone(high),                          //
		pyAlloc(high, 7),                      // the address again
		pyDone(high + 1024),                   // its free_requested was not recorded
		entry("snapshot", "addr", 0),          //
		entry("something new in PyTorch 3.0"), //
	}))
	want := []Event{{Size: 1000, ID: 0, Op: Alloc}, {Size: 1 << 33, ID: 1, Op: Alloc}, {ID: 0, Op: Free}, {Size: 7, ID: 2, Op: Alloc}, {ID: 1, Op: Free}}
	for _, data := range [][]byte{data, compress(t, data)} {
		tr, err := Read(bytes.NewReader(data), "x")
		require.NoError(t, err)
		require.Equal(t, want, tr.Events)
		require.EqualValues(t, 1000+1<<33, tr.PeakRequested)
		require.Equal(t, 1, tr.Failed)
		require.Equal(t, 1, tr.Skipped)
	}
}

func TestDamagedSnapshots(t *testing.T) {
	for want, root := range map[string]any{
		"x: the pickle is not a memory snapshot: it has no device_traces":                                        pyDict{"segments": entries{}},
		"x: device_traces holds something that is not a list":                                                    snapshot("a"),
		"x: the snapshot has no events: its history was not recorded (torch.cuda.memory._record_memory_history)": snapshot(entries{}),
		"x: event 0: the entry is not a dictionary":                                                              snapshot(entries{1}),
		"x: event 1: the entry has no action":                                                                    snapshot(entries{pyAlloc(1, 1), pyDict{}}),
		"x: event 0: alloc has no addr":                                                                          snapshot(entries{entry("alloc")}),
		"x: event 0: free_requested has no addr":                                                                 snapshot(entries{entry("free_requested", "addr", "a")}),
		"x: event 0: alloc has no size":                                                                          snapshot(entries{pyAlloc(1, "a")}),
		"x: event 0: alloc has no stream":                                                                        snapshot(entries{entry("alloc", "addr", 1, "size", 1)}),
		"x: event 0: negative size -5":                                                                           snapshot(entries{pyAlloc(1, -5)}),
		"x: event 1: duplicate ID 1: the block is still live":                                                    snapshot(entries{pyAlloc(1, 1), pyAlloc(1, 1)}),
		"x: event 0: free_completed has no addr":                                                                 snapshot(entries{pyDone("a")}),
	} {
		_, err := Read(bytes.NewReader(pickled(t, root)), "x")
		var damage *ParseError
		require.ErrorAs(t, err, &damage)
		require.EqualError(t, err, want)
	}
	_, err := Read(bytes.NewReader(pickled(t, entries{1})), "x")
	require.EqualError(t, err, "x: the pickle is not a memory snapshot: it holds no dictionary")
}

// A pickle that ends early, or has other bytes, is an error and not a crash.
func TestTruncatedSnapshot(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(recorded, "torch_default.pickle.gz"))
	require.NoError(t, err)
	for n := 1; n < len(data); n += 101 {
		_, err := Read(bytes.NewReader(data[:n]), "x")
		var damage *ParseError
		require.ErrorAs(t, err, &damage, n)
	}
	plain := pickled(t, snapshot(entries{pyAlloc(1, 1), pyFree(1), pyDone(1)}))
	for n := 1; n < len(plain); n++ {
		_, err := Read(bytes.NewReader(plain[:n]), "x")
		require.ErrorContains(t, err, fmt.Sprintf("damaged pickle at byte %d: ", n))
		damaged := bytes.Clone(plain)
		damaged[n] ^= 0x55
		_, _ = Read(bytes.NewReader(damaged), "x") // whatever it is, no panic
	}
}
