package snapshot_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

var update = flag.Bool("update", false, "write the golden files anew")

const mib = 1 << 20

var (
	forward = snapshot.Stack{{Function: "main.(*layer).forward", File: "/src/mlp/layer.go", Line: 41}, {Function: "main.main", File: "/src/mlp/main.go", Line: 12}}
	batches = snapshot.Stack{{Function: "main.load.func1", File: "/src/mlp/däta.go", Line: 70_000}, {Function: "main.main", File: "/src/mlp/main.go", Line: 12}}
)

// sample is an allocator with all that a snapshot can hold, a private pool of it and
// the allocator of another device.
func sample() []snapshot.Snapshot {
	const high = 0x7f51_4800_0000
	at := func(us int) time.Time {
		return time.Unix(1_795_220_462, 0).Add(time.Duration(us) * time.Microsecond).UTC()
	}
	return []snapshot.Snapshot{{
		Device: "H200",
		Segments: []snapshot.Segment{{
			Address: 512 * mib, Size: 16 * mib, Allocated: 4 * mib, Active: 4 * mib, Requested: 4*mib - 1, Type: "large", Virtual: true,
			Blocks: []snapshot.Block{
				{Address: 512 * mib, Size: 2 * mib, State: snapshot.Part},
				{Address: 514 * mib, Size: 4 * mib, Requested: 4*mib - 1, State: snapshot.Live, Stack: forward},
				{Address: 518 * mib, Size: 6 * mib, State: snapshot.Gap},
				{Address: 524 * mib, Size: 4 * mib, State: snapshot.Free},
			},
		}, {
			Address: 1024 * mib, Size: 2 * mib, Allocated: 2 * mib, Active: 2 * mib, Requested: 2 * mib, Type: "large", Virtual: true, Stitched: true,
			Blocks: []snapshot.Block{{Address: 1024 * mib, Size: 2 * mib, Requested: 2 * mib, State: snapshot.Live, Label: "weights"}},
		}, {
			Address: high, Size: 2 * mib, Allocated: 1024, Active: 2048, Requested: 2000, Stream: 0x5581_1234_5670, Number: 3, Type: "small",
			Blocks: []snapshot.Block{
				{Address: high, Size: 1024, Requested: 1000, State: snapshot.Live, Label: strings.Repeat("long ", 100), Stack: batches, Weight: 524.5},
				{Address: high + 1024, Size: 1024, Requested: 1000, State: snapshot.Pending, Stack: batches},
				{Address: high + 2048, Size: 1024, State: snapshot.Cached},
				{Address: high + 3072, Size: 2*mib - 3072, State: snapshot.Free},
			},
		}},
		Events: []snapshot.Event{
			{Number: 7, Kind: snapshot.FreeRequested, Time: at(0), Address: 77 * mib, Size: 5, Weight: 1}, // of a block from before
			{Number: 8, Kind: snapshot.SegmentAlloc, Time: at(1), Address: high, Size: 2 * mib, Stream: 0x5581_1234_5670, Weight: 1},
			{Number: 9, Kind: snapshot.Alloc, Time: at(2), Address: high, Size: 1000, Stream: 0x5581_1234_5670, Label: strings.Repeat("long ", 100), Stack: batches, Weight: 524.5},
			{Number: 10, Kind: snapshot.Alloc, Time: at(3), Address: high + 2048, Size: 700, Stream: 0x5581_1234_5670, Stack: forward, Weight: 1},
			{Number: 11, Kind: snapshot.FreeRequested, Time: at(4), Address: high + 2048, Size: 700, Stream: 0x5581_1234_5670, Weight: 1},
			{Number: 12, Kind: snapshot.FreeCompleted, Time: at(5), Address: high + 2048, Size: 700, Stream: 0x5581_1234_5670, Weight: 1},
			{Number: 14, Kind: snapshot.Stitch, Time: at(6), Address: 1024 * mib, Size: 2 * mib, Weight: 1},
			{Number: 15, Kind: snapshot.Trim, Time: at(7), Size: 6 * mib, Weight: 1},
			{Number: 16, Kind: snapshot.SegmentUnmap, Time: at(8), Address: 518 * mib, Size: 6 * mib, Weight: 1},
			{Number: 17, Kind: snapshot.OutOfMemory, Time: at(9), Address: 300 * mib, Size: 1 << 42, Stack: forward, Weight: 1},
			{Number: 18, Kind: snapshot.Taken, Time: at(10), Weight: 1},
		},
		Totals: []snapshot.Total{{Stack: batches, Label: "weights", Allocations: 1573.5, Bytes: 1_573_500}, {Stack: forward, Allocations: 1, Bytes: 700}},
	}, {
		Device: "H200", Pool: "tenant",
		Segments: []snapshot.Segment{{
			Address: 256 * mib, Size: 2 * mib, Stream: 1, Number: 1, Type: "small",
			Blocks: []snapshot.Block{{Address: 256 * mib, Size: 2 * mib, State: snapshot.Free}},
		}},
		Events: []snapshot.Event{{Number: 13, Kind: snapshot.SegmentAlloc, Time: at(4), Pool: "tenant", Address: 256 * mib, Size: 2 * mib, Stream: 1, Weight: 1}},
	}, {
		Device: "host", Segments: []snapshot.Segment{},
	}}
}

// What WriteTorch writes stays the same, byte for byte.
func TestWriteTorch(t *testing.T) {
	golden := filepath.Join("testdata", "torch.pickle")
	got := torch(t, sample()...)
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, want, got, "go test ./snapshot -run Torch -update writes it anew")
}

func torch(t testing.TB, list ...snapshot.Snapshot) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, snapshot.WriteTorch(&out, list...))
	return out.Bytes()
}

// The golden file as Python reads it, and by instructions that PyTorch's viewer has.
func TestPythonReadsIt(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3")
	}
	cmd := exec.Command(python, "-c", `
import json, pickle, pickletools, sys
data = sys.stdin.buffer.read()
viewer = """APPEND APPENDS BINGET BINFLOAT BININT BININT1 BININT2 BINPUT BINUNICODE DICT EMPTY_DICT EMPTY_LIST EMPTY_TUPLE FRAME
LIST LONG1 LONG_BINGET LONG_BINPUT MARK MEMOIZE NEWFALSE NEWTRUE NONE PROTO SETITEM SETITEMS SHORT_BINUNICODE STOP TUPLE TUPLE1 TUPLE2 TUPLE3""".split()
for op, arg, at in pickletools.genops(data):
    assert op.name in viewer, (op.name, at)
    assert op.name != "PROTO" or 2 <= arg <= 4, arg
json.dump(pickle.loads(data), sys.stdout, indent=1, ensure_ascii=False)
`)
	cmd.Env = append(os.Environ(), "PYTHONIOENCODING=utf-8")
	cmd.Stdin = bytes.NewReader(torch(t, sample()...))
	cmd.Stderr = os.Stderr
	got, err := cmd.Output()
	require.NoError(t, err)
	golden := filepath.Join("testdata", "torch.json")
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// What was written is read back: gaps and parts are gone, and what the viewer cannot
// follow.
func TestTorchAndBack(t *testing.T) {
	want := sample()
	ranges := &want[0].Segments
	first, second := (*ranges)[0], (*ranges)[0]
	first.Address, first.Size, first.Blocks = 514*mib, 4*mib, first.Blocks[1:2]
	second.Address, second.Size, second.Blocks = 524*mib, 4*mib, second.Blocks[3:]
	second.Allocated, second.Active, second.Requested = 0, 0, 0
	(*ranges)[2].Blocks[2].State = snapshot.Free // PyTorch has one word for both
	*ranges = append([]snapshot.Segment{first, second}, (*ranges)[1:]...)
	events := want[0].Events
	pending := events[2]
	pending.Address, pending.Label, pending.Weight, pending.Time = events[2].Address+1024, "", 1, events[1].Time
	want[0].Events = append([]snapshot.Event{events[1], pending}, events[2:]...)
	for i := range want {
		for k := range want[i].Events {
			want[i].Events[k].Number = uint64(k + 1)
		}
	}
	want[1].Events[0].Pool = "tenant"
	got, err := snapshot.Read(bytes.NewReader(torch(t, sample()...)))
	require.NoError(t, err)
	require.Equal(t, want, got)
	again, err := snapshot.Read(bytes.NewReader(torch(t, got...)))
	require.NoError(t, err)
	require.Equal(t, got, again)
}

// What PyTorch wrote is read, written and read the same.
func TestReadPyTorch(t *testing.T) {
	for name, want := range map[string]struct {
		segments int
		live     int64
		virtual  bool
	}{"torch_default.pickle.gz": {5, 75997184, false}, "torch_expandable.pickle.gz": {2, 75997184, true}} {
		f, err := os.Open(filepath.Join("../testdata/traces", name))
		require.NoError(t, err)
		defer f.Close()
		list, err := snapshot.Read(f)
		require.NoError(t, err)
		require.Len(t, list, 1)
		s := list[0]
		require.Equal(t, "cuda:0", s.Device)
		require.Len(t, s.Segments, want.segments)
		var live int64
		for _, seg := range s.Segments {
			require.Equal(t, want.virtual, seg.Virtual)
			live += seg.Allocated
		}
		require.Equal(t, want.live, live)
		require.Equal(t, snapshot.OutOfMemory, s.Events[len(s.Events)-1].Kind)
		again, err := snapshot.Read(bytes.NewReader(torch(t, list...)))
		require.NoError(t, err)
		require.Equal(t, list, again, "no event of PyTorch's was left out")
	}
}
