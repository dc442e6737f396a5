package snapshot_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/gunzip"
	"github.com/cupool/cupool/internal/pickle"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/bombs"
	"github.com/cupool/cupool/snapshot"
)

func TestReadJSON(t *testing.T) {
	want := sample()
	text, err := json.MarshalIndent(want, "", "\t")
	require.NoError(t, err)
	for _, data := range [][]byte{text, testkit.Gzip(t, text)} {
		got, err := snapshot.Read(bytes.NewReader(data))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	text, err = json.Marshal(want[1])
	require.NoError(t, err)
	got, err := snapshot.Read(strings.NewReader("\n " + string(text)))
	require.NoError(t, err)
	require.Equal(t, want[1:2], got)
}

// pickled writes a pickle by hand; it is what d writes.
func pickled(t testing.TB, d func(p *pickle.Writer)) string {
	var out bytes.Buffer
	p := pickle.NewWriter(&out)
	d(p)
	require.NoError(t, p.Close())
	return out.String()
}

// with writes a dictionary of one list with one item.
func with(t testing.TB, key string, item func(p *pickle.Writer)) string {
	return pickled(t, func(p *pickle.Writer) {
		p.Dict(func() {
			p.String("segments")
			p.List(0, nil)
			p.String(key)
			p.List(1, func(int) { item(p) })
		})
	})
}

// endless is a file with no end, of which a reader of nonsense takes little.
type endless struct {
	text string
	n    int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.n += len(p); e.n > 1<<20 {
		panic("too much is read")
	}
	for i := range p {
		p[i] = e.text[i%len(e.text)]
	}
	return len(p), nil
}

func TestReadErrors(t *testing.T) {
	dict := func(p *pickle.Writer) { p.Dict(func() {}) }
	number := func(p *pickle.Writer) { p.Int(1) }
	half := `{"segments": [{"total_size": 4611686018427387904, "blocks": [{"state": "free", "size": 4611686018427387904}]}]}`
	for data, want := range map[string]string{
		"":                       "at byte 0: there is nothing",
		" []\n":                  "at byte 0: the list of snapshots is empty",
		"\x1f\x8bx":              "at byte 0: unexpected EOF",
		"{":                      "at byte 1: unexpected EOF",
		" \n{\"segments\": [}":   "at byte 17: invalid character '}'",
		" {\"segments\": []} {}": "at byte 19: something follows",
		`{"segments": 1}`:        "at byte 14: json: cannot unmarshal number into Go struct field Snapshot.segments of type []snapshot.Segment",
		`{"device": "cuda"}`:     "segments: there are none",
		`[{"segments": []}, {}]`: "segments: there are none",
		`{"segments": [], "events": [{"time": "noon"}]}`:                                                                                                `JSON: parsing time "noon" as`,
		`{"segments": [{"total_size": 5}]}`:                                                                                                             "segments[0]: its blocks are not of its size",
		`{"segments": [{"total_size": 5, "blocks": [{"size": 5}]}]}`:                                                                                    `segments[0].blocks[0]: its state is ""`,
		`{"segments": [{"address": 7, "total_size": 5, "blocks": [{"state": "free", "size": 5}]}]}`:                                                     "segments[0].blocks[0]: 5 bytes at address 0 do not follow the block before",
		`{"segments": [{"total_size": 5, "blocks": [{"state": "free", "size": 4}]}]}`:                                                                   "segments[0]: its blocks are not of its size",
		`{"segments": [{"total_size": 5, "blocks": [{"state": "free", "size": 6}]}]}`:                                                                   "segments[0]: its blocks are not of its size",
		`{"segments": [{"address": 18446744073709551615, "total_size": 5, "blocks": [{"address": 18446744073709551615, "state": "free", "size": 5}]}]}`: "segments[0]: its blocks are not of its size",
		`{"segments": [{"total_size": 5, "blocks": [{"state": "live", "size": 5, "weight": 1e300}]}]}`:                                                  "segments[0].blocks[0]: its weight is 1e+300",
		`{"segments": [{"total_size": 5, "blocks": [{"state": "live", "size": 5, "weight": -1}]}]}`:                                                     "segments[0].blocks[0]: its weight is -1",
		`{"segments": [{"total_size": 5, "blocks": [{"state": "live", "size": 5, "requested_size": 6}]}]}`:                                              "segments[0].blocks[0]: 6 bytes requested are more than its 5",
		`{"segments": [], "events": [{"weight": 1e19}]}`:                                                                                                "events[0]: its weight is 1e+19",
		`{"segments": [], "events": [{"size": -5, "addr": 7}]}`:                                                                                         "events[0]: there are no -5 bytes at address 7",
		`{"segments": [], "events": [{"size": 5, "addr": 18446744073709551615}]}`:                                                                       "events[0]: there are no 5 bytes at address 18446744073709551615",
		`{"segments": [], "totals": [{"allocations": 1e300}]}`:                                                                                          "totals[0]: there are no 1e+300 allocations of 0 bytes",
		`{"segments": [], "totals": [{"bytes": -5}]}`:                                                                                                   "totals[0]: there are no 0 allocations of -5 bytes",
		`{"segments": [], "pools": [{"segments": [], "pools": [{}]}]}`:                                                                                  "pools: those of a private pool are none",
		`[` + half + `,` + half + `]`:                                                                                                                   "segments[0]: it and those before hold more bytes than can be counted",
		`{"segments": [{"total_size": -5, "blocks": [{"state": "free", "size": -5}]}]}`:                                                                 "segments[0].blocks[0]: -5 bytes at address 0 do not follow the block before",
		"a trace of ours":              "at byte 0: it is neither JSON nor a pickle",
		"\x80\x02}X":                   "at byte 4: it is truncated there: unexpected EOF",
		"\x80\x02cos\nsystem\n":        `at byte 2: instruction "c" is none of a memory snapshot's`,
		pickled(t, number):             "segments: there is no such list",
		pickled(t, dict):               "segments: there is no such list",
		with(t, "segments", number):    "segments[0]: it is not a dictionary",
		with(t, "segments", dict):      "segments[0]: it has no address",
		with(t, "device_traces", dict): "device_traces[0]: there is no such list",
		with(t, "pools", dict):         "pools[0]: it has no device",
		with(t, "device_traces", func(p *pickle.Writer) { p.List(1, func(int) { p.Dict(func() {}) }) }): "device_traces[0][0]: it has no size",
		with(t, "device_traces", func(p *pickle.Writer) {
			p.List(1, func(int) {
				p.Dict(func() { p.String("size"); p.Int(1); p.String("time_us"); p.Int(1 << 60) })
			})
		}): "events[0]: it is of the year 38504",
		with(t, "segments", func(p *pickle.Writer) {
			p.Dict(func() {
				for _, key := range []string{"address", "total_size", "stream"} {
					p.String(key)
					p.Int(5)
				}
				p.String("blocks")
				p.List(1, func(int) { p.Dict(func() { p.String("size"); p.Int(5); p.String("state"); p.String("new") }) })
			})
		}): `segments[0].blocks[0]: its state is ""`,
		pickled(t, func(p *pickle.Writer) {
			p.Dict(func() {
				p.String("segments")
				p.List(0, nil)
				p.String("device_traces")
				p.List(2, func(int) {
					p.Shared(1, func() { p.List(1, func(int) { p.Dict(func() { p.String("size"); p.Int(1) }) }) })
				})
			})
		}): "device_traces[1]: the same list stands in another place, too",
	} {
		_, err := snapshot.Read(strings.NewReader(data))
		var damage *snapshot.FormatError
		require.ErrorAs(t, err, &damage, "%q", data)
		require.ErrorContains(t, err, "not a memory snapshot: "+want, "%q", data)
	}
	for _, text := range []string{"{", "[{", "{]", "x", "[1,"} {
		_, err := snapshot.Read(&endless{text: text})
		require.Error(t, err, text)
	}
	broken := errors.New("broken")
	for _, text := range []string{"{", "\x80\x02", ""} {
		_, err := snapshot.Read(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)))
		require.ErrorIs(t, err, broken)
	}
}

// A snapshot of nothing is one.
func TestReadNothing(t *testing.T) {
	for _, data := range []string{`{"segments": []}`, pickled(t, func(p *pickle.Writer) { p.List(0, nil) })} {
		list, err := snapshot.Read(strings.NewReader(data))
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Empty(t, list[0].Segments)
		require.Empty(t, list[0].Layout())
	}
}

// Blocks share the stacks that they share in the file, of which the innermost functions
// are read.
func TestReadShared(t *testing.T) {
	for n, want := range map[int]int{3: 3, 2000: 1024} {
		data := with(t, "segments", func(p *pickle.Writer) {
			p.Dict(func() {
				for key, n := range map[string]int64{"address": 0, "stream": 0, "total_size": 2} {
					p.String(key)
					p.Int(n)
				}
				p.String("blocks")
				p.List(2, func(int) {
					p.Dict(func() {
						p.String("size")
						p.Int(1)
						p.String("state")
						p.String("inactive")
						p.String("frames")
						p.Shared(1, func() { p.List(n, func(i int) { p.Dict(func() { p.String("line"); p.Int(int64(i)) }) }) })
					})
				})
			})
		})
		list, err := snapshot.Read(strings.NewReader(data))
		require.NoError(t, err)
		blocks := list[0].Segments[0].Blocks
		require.Len(t, blocks[0].Stack, want)
		require.Equal(t, want-1, blocks[1].Stack[want-1].Line)
		require.Same(t, &blocks[0].Stack[0], &blocks[1].Stack[0])
	}
}

// Of a long stack in JSON the innermost functions are read, wherever it stands.
func TestReadLongStacks(t *testing.T) {
	for n, want := range map[int]int{1024: 1024, 1025: 1024} {
		long := make(snapshot.Stack, n)
		for i := range long {
			long[i].Line = i
		}
		text, err := json.Marshal(snapshot.Snapshot{
			Segments: []snapshot.Segment{{Size: 1, Blocks: []snapshot.Block{{Size: 1, State: snapshot.Free, Stack: long}}}},
			Events:   []snapshot.Event{{Stack: long}},
			Totals:   []snapshot.Total{{Stack: long}},
		})
		require.NoError(t, err)
		list, err := snapshot.Read(bytes.NewReader(text))
		require.NoError(t, err)
		for _, s := range []snapshot.Stack{list[0].Segments[0].Blocks[0].Stack, list[0].Events[0].Stack, list[0].Totals[0].Stack} {
			require.Equal(t, long[:want], s)
		}
	}
}

// FuzzRead: whatever there is to read, it fails by a FormatError alone, and allocates
// no more than it may. A snapshot can be written, and what is read of that is
// written the same.
func FuzzRead(f *testing.F) {
	text, err := json.Marshal(sample())
	require.NoError(f, err)
	for _, data := range [][]byte{text, torch(f, sample()...), []byte(`{"segments": []}`), []byte("[]"), []byte("[{},{}]"), []byte(`{"segments": [{},{}]}`)} {
		f.Add(data)
		f.Add(testkit.Gzip(f, data))
	}
	for _, data := range bombs.Snapshots(1 << 10) {
		f.Add(data)
		f.Add(testkit.Gzip(f, data))
	}
	for _, name := range []string{"torch_default.pickle.gz", "torch_expandable.pickle.gz"} {
		data, err := os.ReadFile(filepath.Join("../testdata/traces", name))
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n := len(data)
		if br, err := gunzip.NewReader(bytes.NewReader(data)); err == nil {
			contents, _ := io.Copy(io.Discard, br)
			n = max(n, int(contents))
		}
		var list []snapshot.Snapshot
		var err error
		testkit.RequireAllocates(t, 2<<20, 1<<10, n, func() { list, err = snapshot.Read(bytes.NewReader(data)) })
		if err != nil {
			var damage *snapshot.FormatError
			require.ErrorAs(t, err, &damage)
			require.Less(t, len(err.Error()), 500)
			return
		}
		requireBounded(t, n, list)
		first, err := snapshot.Read(bytes.NewReader(torch(t, list...)))
		require.NoError(t, err)
		again, err := snapshot.Read(bytes.NewReader(torch(t, first...)))
		require.NoError(t, err)
		require.Equal(t, first, again)
	})
}
