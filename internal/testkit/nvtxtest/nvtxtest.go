// Package nvtxtest records the ranges of tests, as a tool of NVIDIA's would.
package nvtxtest

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/injection.c
var injection []byte

// Event is the start or the end of a range.
type Event struct {
	End    bool
	Domain string
	Name   string
	Bytes  int64 // of a start
}

// inside says that this is the process that Record started.
const inside = "NVTX_RECORD"

// Record runs a function in a process of its own with a library that records
// ranges, and returns these in order. It skips the test without a C compiler, or
// elsewhere than on Linux. The function returns in that process only, and not in the
// caller's, which gets ok.
func Record(t *testing.T, run func(t *testing.T)) (events []Event, ok bool) {
	t.Helper()
	if os.Getenv(inside) != "" {
		run(t)
		return nil, false
	}
	file := filepath.Join(t.TempDir(), "ranges")
	Start(t, "^"+t.Name()+"$", Build(t), inside+"="+file)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		require.Len(t, f, 4, line)
		bytes, err := strconv.ParseInt(f[3], 10, 64)
		require.NoError(t, err)
		events = append(events, Event{f[0] == "end", f[1], f[2], bytes})
	}
	return events, true
}

// Start runs tests of this program again, with a library as the tool.
func Start(t *testing.T, tests, library string, env ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", tests)
	cmd.Env = append(append(os.Environ(), "NVTX_INJECTION64_PATH="+library), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
}

// Build returns the library.
func Build(t *testing.T) string {
	t.Helper()
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	if _, err := exec.LookPath(cc); err != nil || runtime.GOOS != "linux" {
		t.Skip("it takes a C compiler, on Linux")
	}
	source, library := filepath.Join(t.TempDir(), "injection.c"), filepath.Join(t.TempDir(), "libinjection.so")
	require.NoError(t, os.WriteFile(source, injection, 0o600))
	args := append([]string{"-shared", "-fPIC", "-pthread"}, strings.Fields(os.Getenv("CGO_CFLAGS"))...)
	out, err := exec.Command(cc, append(args, "-o", library, source)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return library
}
