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

// TestLibrary builds the stand-in, where there is a C compiler, and checks that it has every entry point that cudadrv looks up and
// every control that this package calls.
func TestLibrary(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("no C compiler")
	}
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "a cache"))
	setup, err := cudatoolkit.System{}.Setup("")
	require.NoError(t, err)
	cmd := exec.Command("./build.sh", dir)
	cmd.Env = os.Environ()
	for _, v := range setup.Vars {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Empty(t, string(out), "warnings")

	for _, x := range []struct{ library, file, names string }{
		{"libcuda.so", "../cudadrv/entries.h", `X\(\w+, "\w+", "(\w+)"`},
		{"libcuda.so", "control.go", `dlsym\(RTLD_DEFAULT, "(\w+)"\)`},
		{"libnccl.so.2", "../ncclapi/nccl.c", `"(nccl\w+)"`},
	} {
		has := symbols(t, filepath.Join(dir, x.library))
		text, err := os.ReadFile(x.file)
		require.NoError(t, err)
		found := regexp.MustCompile(x.names).FindAllSubmatch(text, -1)
		require.NotEmpty(t, found, x.file)
		for _, m := range found {
			assert.True(t, has[string(m[1])], "%s, of %s, is missing in %s", m[1], x.file, x.library)
		}
	}
}

// symbols returns what a library defines.
func symbols(t *testing.T, library string) map[string]bool {
	t.Helper()
	f, err := elf.Open(library)
	require.NoError(t, err)
	defer f.Close()
	list, err := f.DynamicSymbols()
	require.NoError(t, err)
	has := make(map[string]bool)
	for _, s := range list {
		has[s.Name] = s.Section != elf.SHN_UNDEF
	}
	return has
}
