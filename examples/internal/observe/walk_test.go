package observe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

// forgetful allocates what nobody frees, and returns the line that does.
func forgetful(t *testing.T, a cupool.Allocator, size int64) (line string) {
	_, file, n, _ := runtime.Caller(0)
	_, err := a.Alloc(size, nil)
	require.NoError(t, err)
	return fmt.Sprintf("%s:%d", filepath.Base(file), n+1)
}

// A user who has only flags and an address finds the line of a leak: on the page, in
// go tool pprof, in the snapshot for PyTorch's viewer, and in the error at the end.
func TestFindLeak(t *testing.T) {
	o := &Options{HTTP: "localhost:0", Snapshot: filepath.Join(t.TempDir(), "a.pickle")}
	pool, err := cupool.New(o.Config(cupool.Config{}))
	require.NoError(t, err)
	var out bytes.Buffer
	s, err := Start(o, pool, &out)
	require.NoError(t, err)
	url := regexp.MustCompile(`http://\S+`).FindString(out.String())

	const leaks, size = 20, 1 << 20
	var line string
	for range leaks {
		b, err := pool.Alloc(3*size, nil)
		require.NoError(t, err)
		line = forgetful(t, pool, size)
		require.NoError(t, pool.Free(b))
	}

	var onPage snapshot.Snapshot
	require.NoError(t, json.Unmarshal(get(t, url+"snapshot"), &onPage))
	require.EqualValues(t, leaks*size, held(t, line, onPage))
	require.Regexp(t, `20MB +100% .*/observe\.forgetful .*`+regexp.QuoteMeta(line), pprofTop(t, url+"heap"))

	require.NoError(t, s.Close())
	f, err := os.Open(o.Snapshot)
	require.NoError(t, err)
	defer f.Close()
	inFile, err := snapshot.Read(f)
	require.NoError(t, err)
	require.EqualValues(t, leaks*size, held(t, line, inFile...))

	err = pool.Close()
	var leak *cupool.LeakError
	require.ErrorAs(t, err, &leak)
	require.Contains(t, err.Error(), line)
	require.Contains(t, err.Error(), "20 blocks")
}

// held returns the live bytes that were allocated by a line.
func held(t *testing.T, line string, pools ...snapshot.Snapshot) (bytes int64) {
	for _, p := range pools {
		for _, seg := range p.Segments {
			for _, b := range seg.Blocks {
				if b.State == snapshot.Live {
					require.NotEmpty(t, b.Stack)
					if at := b.Stack[0]; fmt.Sprintf("%s:%d", filepath.Base(at.File), at.Line) == line {
						bytes += b.Requested
					}
				}
			}
		}
	}
	return bytes
}

// pprofTop is what go tool pprof prints about a profile.
func pprofTop(t *testing.T, profile string) string {
	cmd := exec.Command("go", "tool", "pprof", "-top", "-lines", profile)
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// The error of an allocation that failed says who holds the memory and what to
// change, as does the page, and with the change it works.
func TestOutOfMemorySaysWhat(t *testing.T) {
	o := &Options{HTTP: "localhost:0"}
	fill := func(limit int64) (onPage string, err error) {
		pool := newPool(t, o, cupool.Config{Limit: limit})
		var out bytes.Buffer
		s, startErr := Start(o, pool, &out)
		require.NoError(t, startErr)
		forgetful(t, pool.WithLabel("weights"), 12<<20)
		_, err = pool.Alloc(16<<20, nil)
		var last struct{ Text string }
		require.NoError(t, json.Unmarshal(get(t, regexp.MustCompile(`http://\S+`).FindString(out.String())+"oom"), &last))
		require.NoError(t, s.Close())
		return last.Text, err
	}
	onPage, err := fill(24 << 20)
	var oom *cupool.OOMError
	require.ErrorAs(t, err, &oom)
	require.Equal(t, err.Error(), onPage)
	require.Equal(t, "limit", oom.Reason)
	require.Contains(t, err.Error(), "weights")
	suggested := regexp.MustCompile(`would have helped: Limit: (\d+)<<20`).FindStringSubmatch(err.Error())
	require.NotNil(t, suggested, err.Error())
	limit, err := strconv.ParseInt(suggested[1], 10, 64)
	require.NoError(t, err)
	_, err = fill(limit << 20)
	require.NoError(t, err, suggested[0])
}
