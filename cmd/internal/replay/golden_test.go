package replay

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/trace"
)

var update = flag.Bool("update", false, "write the golden files anew")

const golden = "../../../testdata/traces"

// TestGolden replays the small traces of testdata/traces and compares what is
// left at their end, block by block, with the file beside them. A first line
// "# capacity 64MiB" limits the device. go test -update writes the files;
// look at every change.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden, "*.trace"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".trace")
		t.Run(name, func(t *testing.T) {
			got := outcome(t, file)
			want := strings.TrimSuffix(file, ".trace") + ".layout"
			if *update {
				require.NoError(t, os.WriteFile(want, []byte(got), 0o666))
			}
			text, err := os.ReadFile(want)
			require.NoError(t, err, "go test -update makes it")
			require.Equal(t, string(text), got)
		})
	}
}

// outcome describes the end of a replay with every backing.
func outcome(t *testing.T, file string) string {
	tr, err := trace.ReadFile(file)
	require.NoError(t, err)
	var out strings.Builder
	for _, backing := range []string{"segments", "vmm"} {
		var layout string
		o := Options{Backing: backing, Capacity: capacityOf(t, file)}
		r, err := Run(context.Background(), tr, o)
		require.NoError(t, err)
		require.NoError(t, After(context.Background(), tr, o, len(tr.Events), func(c *cupool.Pool) error {
			layout = c.Snapshot().Layout()
			return c.Check()
		}))
		fmt.Fprintf(&out, "%s: peak requested %d, reserved %d, driver allocs %d, frees %d, failed %d, first at event %d\n%s\n",
			backing, r.PeakRequestedBytes, r.PeakReservedBytes, r.DriverAllocs, r.DriverFrees, r.FailedAllocs, r.FirstFailed, layout)
	}
	return out.String()
}

func capacityOf(t *testing.T, file string) int64 {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	line, _ := bufio.NewReader(f).ReadString('\n')
	size, ok := strings.CutPrefix(line, "# capacity ")
	if !ok {
		return 0
	}
	n, err := cupool.ParseBytes(strings.TrimSpace(size))
	require.NoError(t, err)
	return n
}
