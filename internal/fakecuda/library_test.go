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
