package observe

import (
	"bytes"
	"fmt"
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

// serve serves the page and returns its address, without its path.
func serve(t *testing.T, o *Options, pool *cupool.Pool) (url string, stop func() error) {
	t.Helper()
	var out bytes.Buffer
	stop, err := o.Serve(pool, &out)
	require.NoError(t, err)
	line := regexp.MustCompile(`^the pool is at (http://[\d.:\[\]]+)/debug/cupool/\n$`).FindStringSubmatch(out.String())
	require.NotNil(t, line, "%q", out.String())
	return line[1], stop
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

// The page is there until stop, at the address that was printed, and from the
// root.
func TestServe(t *testing.T) {
	o := &Options{HTTP: "localhost:0"}
	pool := newPool(t, o, cupool.Config{})
	url, stop := serve(t, o, pool)
	require.Equal(t, get(t, url+"/debug/cupool/"), get(t, url))
	other := &Options{HTTP: url[len("http://"):]}
	_, err := other.Serve(pool, io.Discard)
	require.ErrorContains(t, err, "-http "+other.HTTP)
	require.NoError(t, stop())
	_, err = http.Get(url)
	require.Error(t, err)
}

// Files are of the moment when memory ran out, if it did, and name who held it.
func TestWrite(t *testing.T) {
	for name, want := range map[string]int64{"at the end": 8 << 20, "memory ran out": 12 << 20} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := &Options{Snapshot: filepath.Join(dir, "a.pickle"), Profile: filepath.Join(dir, "a.pb.gz")}
			pool := newPool(t, o, cupool.Config{Limit: 16 << 20})
			_, err := pool.Alloc(8<<20, nil)
			require.NoError(t, err)
			if want > 8<<20 {
				fill, err := pool.Alloc(4<<20, nil)
				require.NoError(t, err)
				_, err = pool.Alloc(8<<20, nil)
				require.ErrorIs(t, err, cupool.ErrOutOfMemory)
				require.NoError(t, pool.Free(fill))
			}
			require.NoError(t, o.Write(pool))
			f, err := os.Open(o.Snapshot)
			require.NoError(t, err)
			defer f.Close()
			pools, err := snapshot.Read(f)
			require.NoError(t, err)
			var live int64
			for _, seg := range pools[0].Segments {
				live += seg.Allocated
				require.Contains(t, fmt.Sprint(seg.Blocks[0].Stack), "observe.TestWrite")
			}
			require.Equal(t, want, live)
			info, err := os.Stat(o.Profile)
			require.NoError(t, err)
			require.Positive(t, info.Size())
		})
	}
}
