//go:build cgo

package main

import (
	"math"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMemoryLimit: who sets GOMEMLIMIT has that, also where it is off.
func TestMemoryLimit(t *testing.T) {
	if os.Getenv("CUPOOL_TEST_CHILD") != "" {
		_, _ = os.Stdout.WriteString(strconv.FormatInt(debug.SetMemoryLimit(-1), 10))
		os.Exit(0)
	}
	for set, want := range map[string]int64{"": heapLimit, "1GiB": 1 << 30, "off": math.MaxInt64} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMemoryLimit$")
		cmd.Env = append(os.Environ(), "CUPOOL_TEST_CHILD=1", "GOMEMLIMIT="+set)
		out, err := cmd.Output()
		require.NoError(t, err)
		require.Equal(t, strconv.FormatInt(want, 10), string(out), set)
	}
}
