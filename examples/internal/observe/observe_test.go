package observe

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

func newPool(t *testing.T, o *Options, cfg cupool.Config) *cupool.Pool {
	pool, err := cupool.New(o.Config(cfg))
	require.NoError(t, err)
	t.Cleanup(func() { _ = pool.Close() }) // what leaks is what is looked at
	return pool
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, r.StatusCode, "%s: %s", url, body)
	return body
}

// The page is there until Close, at the address that was printed, and from the root.
func TestHTTP(t *testing.T) {
	o := &Options{HTTP: "localhost:0"}
	pool := newPool(t, o, cupool.Config{})
	var out bytes.Buffer
	s, err := Start(o, pool, &out)
	require.NoError(t, err)
	line := regexp.MustCompile(`^the pool is at (http://[\d.:\[\]]+)(/debug/cupool/)\n$`).FindStringSubmatch(out.String())
	require.NotNil(t, line, "%q", out.String())
	var st cupool.Stats
	require.NoError(t, json.Unmarshal(get(t, line[1]+line[2]+"stats"), &st))
	require.Equal(t, get(t, line[1]+line[2]), get(t, line[1]))

	other := &Options{HTTP: line[1][len("http://"):]}
	_, err = Start(other, pool, &out)
	require.ErrorContains(t, err, "-http "+other.HTTP)

	require.NoError(t, s.Close())
	_, err = http.Get(line[1])
	require.Error(t, err)
}

// An address of all interfaces is printed as one that can be opened.
func TestAllInterfaces(t *testing.T) {
	o := &Options{HTTP: ":0"}
	var out bytes.Buffer
	s, err := Start(o, newPool(t, o, cupool.Config{}), &out)
	require.NoError(t, err)
	require.Regexp(t, `http://localhost:\d+/debug/cupool/`, out.String())
	require.NoError(t, s.Close())
}

// read returns the live bytes of a snapshot's file, and the functions that a stack
// of it names.
func read(t *testing.T, file string) (live int64, functions []string) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	pools, err := snapshot.Read(f)
	require.NoError(t, err)
	for _, p := range pools {
		for _, seg := range p.Segments {
			live += seg.Allocated
			for _, b := range seg.Blocks {
				for _, frame := range b.Stack {
					functions = append(functions, frame.Function)
				}
			}
		}
	}
	return live, functions
}

// Files are written once, when Record is called or else by Close; of the moment when
// memory ran out, if it did.
func TestFiles(t *testing.T) {
	for name, c := range map[string]struct {
		record, oom bool
		live        int64
	}{
		"at the end":         {false, false, 0},
		"recorded":           {true, false, 8 << 20},
		"memory ran out":     {false, true, 12 << 20},
		"recorded after oom": {true, true, 12 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := &Options{Snapshot: filepath.Join(dir, "a.pickle"), Profile: filepath.Join(dir, "a.pb.gz")}
			pool := newPool(t, o, cupool.Config{Limit: 16 << 20})
			s, err := Start(o, pool, io.Discard)
			require.NoError(t, err)
			b, err := pool.Alloc(8<<20, nil)
			require.NoError(t, err)
			if c.oom {
				fill, err := pool.Alloc(4<<20, nil)
				require.NoError(t, err)
				_, err = pool.Alloc(8<<20, nil)
				require.ErrorIs(t, err, cupool.ErrOutOfMemory)
				require.NoError(t, pool.Free(fill))
			}
			if c.record {
				require.NoError(t, s.Record())
			}
			require.NoError(t, pool.Free(b))
			require.NoError(t, s.Close())
			live, functions := read(t, o.Snapshot)
			require.Equal(t, c.live, live)
			require.Equal(t, live > 0, len(functions) > 0)
			info, err := os.Stat(o.Profile)
			require.NoError(t, err)
			require.Positive(t, info.Size())
		})
	}
}

// A file that cannot be made is an error before the run. One that is there is kept
// until then.
func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"-snapshot", "-profile"} {
		o := &Options{}
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		o.Register(fs)
		require.NoError(t, fs.Parse([]string{name, filepath.Join(dir, "no", "a")}))
		_, err := Start(o, newPool(t, o, cupool.Config{}), io.Discard)
		require.ErrorIs(t, err, os.ErrNotExist)
		require.ErrorContains(t, err, name)
	}

	o := &Options{Snapshot: filepath.Join(dir, "a.pickle")}
	require.NoError(t, os.WriteFile(o.Snapshot, []byte("before"), 0o600))
	s, err := Start(o, newPool(t, o, cupool.Config{}), io.Discard)
	require.NoError(t, err)
	data, err := os.ReadFile(o.Snapshot)
	require.NoError(t, err)
	require.Equal(t, "before", string(data))
	require.NoError(t, s.Close())
	read(t, o.Snapshot)
}
