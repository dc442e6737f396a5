package trace

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/pickle"
	"github.com/cupool/cupool/internal/testkit"
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
	for _, data := range [][]byte{data, testkit.Gzip(t, data)} {
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

// pythonPickles are a snapshot as Python 3 pickles it, by protocol. Its events
// share a list, and the last has values of many other types.
var pythonPickles = [...]string{
	"(dp0\nVsegments\np1\n(lp2\nsVdevice_traces\np3\n(lp4\n(lp5\na(lp6\n(dp7\nVaction\np8\nValloc\np9\nsVaddr\np10\nL139987085426688L\nsVsize\np11\nI20971520\nsVstream\np12\nI0\nsVframes\np13\n(lp14\n(dp15\nVname\np16\nVtr\xe4in\np17\nsVline\np18\nI10\nsasa(dp19\ng8\nVfree_requested\np20\nsg10\nL139987085426688L\nsg11\nI20971520\nsg12\nI0\nsg13\ng14\nsag7\na(dp21\ng8\nVoom\np22\nsVx\np23\n(I1\nI2\nI3\nI4\ntp24\nsVy\np25\nNsVz\np26\nI01\nsVw\np27\nF1.5\nsVv\np28\nI-3\nsVu\np29\nL1180591620717411303424L\nsaas.",
	"}q\x00(X\x08\x00\x00\x00segmentsq\x01]q\x02X\x0d\x00\x00\x00device_tracesq\x03]q\x04(]q\x05]q\x06(}q\x07(X\x06\x00\x00\x00actionq\x08X\x05\x00\x00\x00allocq\x09X\x04\x00\x00\x00addrq\nL139987085426688L\nX\x04\x00\x00\x00sizeq\x0bJ\x00\x00@\x01X\x06\x00\x00\x00streamq\x0cK\x00X\x06\x00\x00\x00framesq\x0d]q\x0e}q\x0f(X\x04\x00\x00\x00nameq\x10X\x06\x00\x00\x00tr\xc3\xa4inq\x11X\x04\x00\x00\x00lineq\x12K\nuau}q\x13(h\x08X\x0e\x00\x00\x00free_requestedq\x14h\nL139987085426688L\nh\x0bJ\x00\x00@\x01h\x0cK\x00h\x0dh\x0euh\x07}q\x15(h\x08X\x03\x00\x00\x00oomq\x16X\x01\x00\x00\x00xq\x17(K\x01K\x02K\x03K\x04tq\x18X\x01\x00\x00\x00yq\x19NX\x01\x00\x00\x00zq\x1aI01\nX\x01\x00\x00\x00wq\x1bG?\xf8\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00vq\x1cJ\xfd\xff\xff\xffX\x01\x00\x00\x00uq\x1dL1180591620717411303424L\nueeu.",
	"\x80\x02}q\x00(X\x08\x00\x00\x00segmentsq\x01]q\x02X\x0d\x00\x00\x00device_tracesq\x03]q\x04(]q\x05]q\x06(}q\x07(X\x06\x00\x00\x00actionq\x08X\x05\x00\x00\x00allocq\x09X\x04\x00\x00\x00addrq\n\x8a\x06\x00\x00\x80HQ\x7fX\x04\x00\x00\x00sizeq\x0bJ\x00\x00@\x01X\x06\x00\x00\x00streamq\x0cK\x00X\x06\x00\x00\x00framesq\x0d]q\x0e}q\x0f(X\x04\x00\x00\x00nameq\x10X\x06\x00\x00\x00tr\xc3\xa4inq\x11X\x04\x00\x00\x00lineq\x12K\nuau}q\x13(h\x08X\x0e\x00\x00\x00free_requestedq\x14h\n\x8a\x06\x00\x00\x80HQ\x7fh\x0bJ\x00\x00@\x01h\x0cK\x00h\x0dh\x0euh\x07}q\x15(h\x08X\x03\x00\x00\x00oomq\x16X\x01\x00\x00\x00xq\x17(K\x01K\x02K\x03K\x04tq\x18X\x01\x00\x00\x00yq\x19NX\x01\x00\x00\x00zq\x1a\x88X\x01\x00\x00\x00wq\x1bG?\xf8\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00vq\x1cJ\xfd\xff\xff\xffX\x01\x00\x00\x00uq\x1d\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@ueeu.",
	"\x80\x03}q\x00(X\x08\x00\x00\x00segmentsq\x01]q\x02X\x0d\x00\x00\x00device_tracesq\x03]q\x04(]q\x05]q\x06(}q\x07(X\x06\x00\x00\x00actionq\x08X\x05\x00\x00\x00allocq\x09X\x04\x00\x00\x00addrq\n\x8a\x06\x00\x00\x80HQ\x7fX\x04\x00\x00\x00sizeq\x0bJ\x00\x00@\x01X\x06\x00\x00\x00streamq\x0cK\x00X\x06\x00\x00\x00framesq\x0d]q\x0e}q\x0f(X\x04\x00\x00\x00nameq\x10X\x06\x00\x00\x00tr\xc3\xa4inq\x11X\x04\x00\x00\x00lineq\x12K\nuau}q\x13(h\x08X\x0e\x00\x00\x00free_requestedq\x14h\n\x8a\x06\x00\x00\x80HQ\x7fh\x0bJ\x00\x00@\x01h\x0cK\x00h\x0dh\x0euh\x07}q\x15(h\x08X\x03\x00\x00\x00oomq\x16X\x01\x00\x00\x00xq\x17(K\x01K\x02K\x03K\x04tq\x18X\x01\x00\x00\x00yq\x19NX\x01\x00\x00\x00zq\x1a\x88X\x01\x00\x00\x00wq\x1bG?\xf8\x00\x00\x00\x00\x00\x00X\x01\x00\x00\x00vq\x1cJ\xfd\xff\xff\xffX\x01\x00\x00\x00uq\x1d\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@ueeu.",
	"\x80\x04\x95 \x01\x00\x00\x00\x00\x00\x00}\x94(\x8c\x08segments\x94]\x94\x8c\x0ddevice_traces\x94]\x94(]\x94]\x94(}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94\x8a\x06\x00\x00\x80HQ\x7f\x8c\x04size\x94J\x00\x00@\x01\x8c\x06stream\x94K\x00\x8c\x06frames\x94]\x94}\x94(\x8c\x04name\x94\x8c\x06tr\xc3\xa4in\x94\x8c\x04line\x94K\nuau}\x94(h\x08\x8c\x0efree_requested\x94h\n\x8a\x06\x00\x00\x80HQ\x7fh\x0bJ\x00\x00@\x01h\x0cK\x00h\x0dh\x0euh\x07}\x94(h\x08\x8c\x03oom\x94\x8c\x01x\x94(K\x01K\x02K\x03K\x04t\x94\x8c\x01y\x94N\x8c\x01z\x94\x88\x8c\x01w\x94G?\xf8\x00\x00\x00\x00\x00\x00\x8c\x01v\x94J\xfd\xff\xff\xff\x8c\x01u\x94\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@\x8c\x01s\x94\x8f\x94(K\x01\x90\x8c\x01b\x94C\x03bbb\x94ueeu.",
	"\x80\x05\x950\x01\x00\x00\x00\x00\x00\x00}\x94(\x8c\x08segments\x94]\x94\x8c\x0ddevice_traces\x94]\x94(]\x94]\x94(}\x94(\x8c\x06action\x94\x8c\x05alloc\x94\x8c\x04addr\x94\x8a\x06\x00\x00\x80HQ\x7f\x8c\x04size\x94J\x00\x00@\x01\x8c\x06stream\x94K\x00\x8c\x06frames\x94]\x94}\x94(\x8c\x04name\x94\x8c\x06tr\xc3\xa4in\x94\x8c\x04line\x94K\nuau}\x94(h\x08\x8c\x0efree_requested\x94h\n\x8a\x06\x00\x00\x80HQ\x7fh\x0bJ\x00\x00@\x01h\x0cK\x00h\x0dh\x0euh\x07}\x94(h\x08\x8c\x03oom\x94\x8c\x01x\x94(K\x01K\x02K\x03K\x04t\x94\x8c\x01y\x94N\x8c\x01z\x94\x88\x8c\x01w\x94G?\xf8\x00\x00\x00\x00\x00\x00\x8c\x01v\x94J\xfd\xff\xff\xff\x8c\x01u\x94\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00@\x8c\x01s\x94\x8f\x94(K\x01\x90\x8c\x01b\x94C\x03bbb\x94\x8c\x01a\x94\x96\x02\x00\x00\x00\x00\x00\x00\x00bb\x94ueeu.",
}

func TestPythonPickles(t *testing.T) {
	for protocol, data := range pythonPickles {
		tr, err := read(data)
		require.NoError(t, err, protocol)
		alloc := Event{Op: Alloc, Size: 20 << 20}
		again := alloc
		again.ID = 1
		require.Equal(t, []Event{alloc, {Op: Free}, again}, tr.Events, protocol)
		require.Equal(t, 1, tr.Failed)
	}
}

// A list that is kept before it has items is the same list with them.
func TestPickleSharesLists(t *testing.T) {
	tr, err := read("\x80\x02}\x8c\x0ddevice_traces](]q\x00(}\x8c\x06action\x8c\x03ooms}\x8c\x06action\x8c\x03oomse0h\x00es.")
	require.NoError(t, err)
	require.Equal(t, 2, tr.Failed)
}
