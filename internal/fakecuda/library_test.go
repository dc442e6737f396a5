package fakecuda_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/cudatoolkit"
)

// TestLibrary builds the stand-in, where there are a C compiler and CUDA's
// headers, and checks that it has every entry point that cudadrv looks up and
// every control that this package calls.
func TestLibrary(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	toolkit, err := cudatoolkit.System{}.Find("")
	if err != nil && os.Getenv("CGO_CFLAGS") == "" {
		t.Skipf("no headers: %v", err)
	}
	dir := t.TempDir()
	cmd := exec.Command("./build.sh", dir)
	cmd.Env = append(os.Environ(), "CUDA_HOME="+toolkit.Root)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out), "warnings")

	f, err := elf.Open(filepath.Join(dir, "libcuda.so"))
	require.NoError(t, err)
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	require.NoError(t, err)
	has := make(map[string]bool)
	for _, s := range symbols {
		has[s.Name] = s.Section != elf.SHN_UNDEF
	}
	for file, names := range map[string]*regexp.Regexp{
		"../cudadrv/entries.h": regexp.MustCompile(`X\(\w+, "\w+", "(\w+)"`),
		"control.go":           regexp.MustCompile(`dlsym\(RTLD_DEFAULT, "(\w+)"\)`),
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		found := names.FindAllSubmatch(text, -1)
		require.NotEmpty(t, found, file)
		for _, m := range found {
			assert.True(t, has[string(m[1])], "%s, of %s, is missing", m[1], file)
		}
	}
}
