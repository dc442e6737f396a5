package kernels

import (
	"crypto/sha256"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sources returns what kernels.ptx is made of, in the order of build.sh.
func sources(t *testing.T) []string {
	main, err := os.ReadFile("kernels.cu")
	require.NoError(t, err)
	all := []string{"kernel.h", "kernels.cu"}
	for _, m := range regexp.MustCompile(`(?m)^#include "(.*)"`).FindAllSubmatch(main, -1) {
		all = append(all, string(m[1]))
	}
	return all
}

// TestPTXIsUpToDate fails when a kernel was changed and build.sh not run.
func TestPTXIsUpToDate(t *testing.T) {
	h := sha256.New()
	for _, name := range sources(t) {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		h.Write(text)
	}
	first, _, _ := strings.Cut(PTX, "\n")
	require.Equal(t, fmt.Sprintf("// sources %x", h.Sum(nil)), first, "run internal/kernels/build.sh")
}

// TestPTXHasKernels requires an entry for each kernel, and no other.
func TestPTXHasKernels(t *testing.T) {
	for k := Kernel(0); k < Count; k++ {
		require.True(t, strings.Contains(PTX, ".entry "+k.Name()+"("), "kernel %d, %s", k, k.Name())
	}
	require.Equal(t, int(Count), strings.Count(PTX, ".entry "))
	require.True(t, strings.Contains(PTX, ".target sm_75"))
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
