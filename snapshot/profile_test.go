package snapshot_test

import (
	"bytes"
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

var (
	load  = snapshot.Stack{{Function: "main.load", File: "/src/train.go", Line: 42}, {Function: "main.main", File: "/src/main.go", Line: 7}}
	step  = snapshot.Stack{{Function: "main.step", File: "/src/train.go", Line: 50}, {Function: "main.main", File: "/src/main.go", Line: 9}}
	taken = []snapshot.Snapshot{
		{Device: "sim", Segments: []snapshot.Segment{{Number: 0, Blocks: []snapshot.Block{
			{Size: 1 << 20, Requested: 1000, State: snapshot.Live, Stack: load, Label: "weights"},
			{Size: 1 << 20, Requested: 500, State: snapshot.Live, Stack: load, Label: "weights"},
			{Size: 1 << 20, Requested: 100, State: snapshot.Live, Label: "weights"},
			{Size: 2 << 20, Requested: 2000, State: snapshot.Live, Stack: step},
			{Size: 3 << 20, Requested: 3000, State: snapshot.Pending, Stack: step},
			{Size: 4 << 20, State: snapshot.Free},
		}}}},
		{Device: "sim", Pool: "activations", Segments: []snapshot.Segment{{Number: 3, Blocks: []snapshot.Block{
			{Size: 512, Requested: 1, State: snapshot.Live},
			{Size: 512, Requested: 4, State: snapshot.Live, Stack: load},
			{Size: 1024, State: snapshot.Cached},
		}}}},
	}
)

func written(t *testing.T, of ...snapshot.Snapshot) (*profile.Profile, []byte) {
	var file bytes.Buffer
	require.NoError(t, snapshot.WriteProfile(&file, of...))
	p, err := profile.ParseData(file.Bytes())
	require.NoError(t, err)
	require.NoError(t, p.CheckValid())
	return p, file.Bytes()
}

// A file may claim more than can be counted. The sums stay the most that can be.
func TestSumsOfTooMuch(t *testing.T) {
	const most = int64(math.MaxInt64)
	for weight, blocks := range map[float64]int64{1 << 63: most, 0: 2} {
		b := snapshot.Block{Size: 512, Requested: most, State: snapshot.Live, Stack: load, Weight: weight}
		of := snapshot.Snapshot{Segments: []snapshot.Segment{{Blocks: []snapshot.Block{b, b}}}}
		p, _ := written(t, of)
		require.Len(t, p.Sample, 1)
		require.Equal(t, []int64{blocks, most, blocks, most}, p.Sample[0].Value)
		require.Equal(t, []snapshot.Line{{Stack: load, Blocks: blocks, Bytes: most}}, snapshot.LinesOf(of))
	}
}

func TestWriteProfile(t *testing.T) {
	p, _ := written(t, taken...)
	require.Equal(t, "inuse_space", p.DefaultSampleType)
	got := map[string][]int64{}
	for _, s := range p.Sample {
		var name []string
		for _, l := range s.Location {
			name = append(name, l.Line[0].Function.Name)
		}
		for _, key := range []string{"label", "pool", "stream"} {
			name = append(name, s.Label[key]...)
		}
		got[strings.Join(name, " ")] = s.Value
	}
	require.Equal(t, map[string][]int64{
		"main.load main.main weights 0":     {2, 1500, 2, 1500},
		"(not recorded) weights 0":          {1, 100, 1, 100},
		"main.step main.main 0":             {1, 2000, 1, 2000},
		"(not recorded) activations 3":      {1, 1, 1, 1},
		"main.load main.main activations 3": {1, 4, 1, 4},
	}, got)

	// With totals, what was allocated comes from them.
	total := []snapshot.Total{{Stack: load, Label: "weights", Allocations: 7.6, Bytes: 7000}, {Allocations: 1, Bytes: 1}}
	p, _ = written(t, taken[0], snapshot.Snapshot{Totals: total}, snapshot.Snapshot{Pool: "p", Totals: total})
	sums := make([]int64, 4)
	for _, s := range p.Sample {
		for i, v := range s.Value {
			sums[i] += v
		}
		require.Equal(t, s.Value[2] == 0, len(s.Label["stream"]) == 0)
	}
	require.Equal(t, []int64{18, 14002, 4, 3600}, sums)

	// A sample stands for more than itself, and for no more than there is in all.
	w := snapshot.Snapshot{Segments: []snapshot.Segment{{Blocks: []snapshot.Block{{Requested: 10, State: snapshot.Live, Stack: load, Weight: 2.5}, {Requested: 10, State: snapshot.Live}, {Requested: 100, State: snapshot.Live}}}}}
	p, _ = written(t, w)
	require.Equal(t, []int64{3, 25, 3, 25}, p.Sample[0].Value)
	require.Equal(t, []int64{1, 95, 1, 95}, p.Sample[1].Value)

	p, _ = written(t)
	require.Empty(t, p.Sample)
	require.ErrorContains(t, snapshot.WriteProfile(full{}), "writing a profile: no room")
}

// full is a file that nothing more fits into.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no room") }

// Go's own tool names functions and lines without a program file.
func TestProfileInPprof(t *testing.T) {
	_, data := written(t, taken...)
	dir := t.TempDir()
	file := filepath.Join(dir, "heap.pb.gz")
	require.NoError(t, os.WriteFile(file, data, 0o600))
	pprof := func(args ...string) string {
		cmd := exec.Command("go", append([]string{"tool", "pprof"}, append(args, file)...)...)
		cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return string(out)
	}
	top := pprof("-top")
	require.Contains(t, top, "Type: inuse_space")
	require.Regexp(t, `2000B 55.* main\.step\n`, top)
	require.Regexp(t, `1504B .* main\.load\n`, top)
	require.Regexp(t, `101B .* \(not recorded\)\n`, top)
	tagged := pprof("-top", "-tagfocus=label=weights")
	require.Contains(t, tagged, "main.load")
	require.NotContains(t, tagged, "main.step")

	source := filepath.Join(dir, "train.go")
	require.NoError(t, os.WriteFile(source, []byte(strings.Repeat("//\n", 41)+"var w = alloc()\n"), 0o600))
	local := taken[0]
	local.Segments = []snapshot.Segment{{Blocks: []snapshot.Block{{Requested: 7, State: snapshot.Live, Stack: snapshot.Stack{{Function: "main.load", File: source, Line: 42}}}}}}
	_, data = written(t, local)
	require.NoError(t, os.WriteFile(file, data, 0o600))
	require.Regexp(t, `7B\s+7B\s+42:var w = alloc\(\)`, pprof("-list", "main.load"))
}
