package kernels

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPTXIsUpToDate fails when a kernel was changed and build.sh not run.
func TestPTXIsUpToDate(t *testing.T) {
	h := sha256.New()
	for _, pattern := range []string{"*.cu", "*.h"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, name := range files {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			h.Write(text)
		}
	}
	want := fmt.Sprintf("// sources %x", h.Sum(nil))
	for m := range Modules {
		first, _, _ := strings.Cut(m.PTX(), "\n")
		require.Equal(t, want, first, "run internal/kernels/build.sh")
	}
}

// TestPTXHasKernels requires an entry for each kernel, and no other.
func TestPTXHasKernels(t *testing.T) {
	entries := 0
	for m := range Modules {
		entries += strings.Count(m.PTX(), ".entry ")
		require.True(t, strings.Contains(m.PTX(), ".target sm_75"))
	}
	for k := Kernel(0); k < Count; k++ {
		require.True(t, strings.Contains(k.Module().PTX(), ".entry "+k.Name()+"("), "kernel %d, %s", k, k.Name())
	}
	require.Equal(t, int(Count), entries)
}

func TestOfSize(t *testing.T) {
	for size, want := range map[uintptr]string{1: "copy_1", 2: "copy_2", 4: "copy_4", 8: "copy_8"} {
		k, ok := Copy.OfSize(size)
		require.True(t, ok)
		require.Equal(t, want, k.Name())
	}
	_, ok := Copy.OfSize(16)
	require.False(t, ok)
	require.Equal(t, "adam_f64", Adam.Of(true).Name())
	require.Equal(t, "random_f32", Random.Of(false).Name())
}
