package fakecuda_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// build runs build.sh, with more in its environment, and returns what it says.
func build(t *testing.T, env ...string) (path, stderr string, err error) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil || runtime.GOOS != "linux" {
		t.Skip("there is no C compiler, or this is not Linux")
	}
	cmd := exec.Command("./build.sh")
	cmd.Env = append(os.Environ(), env...)
	var text strings.Builder
	cmd.Stderr = &text
	out, err := cmd.Output()
	return string(out), text.String(), err
}

// TestLibrary checks that the stand-in has every function that the packages over
// the libraries look up, and every control that this package calls. The names of
// functions are what is in quotes there; cuGetProcAddress takes them without the
// ending that says which version it is.
func TestLibrary(t *testing.T) {
	path, stderr, err := build(t)
	require.NoError(t, err, stderr)
	require.Empty(t, stderr, "warnings")
	dir, newline := filepath.Split(path)
	require.Equal(t, "libcuda.so.1\n", newline, "the path alone")

	for _, x := range []struct{ library, files, names string }{
		{"libcuda.so.1", "../cudadrv/*", `"(cu[A-Z]\w+)"`},
		{"libcuda.so.1", "control.go", `"(fakecuda_\w+)"`},
		{"libcublas.so.12", "../cublas/*", `"(cublas(?:\w+_v2|\w+Batched|SetMathMode))"`},
		{"libnccl.so.2", "../ncclapi/*", `"(nccl(?:Get|Comm|Group|All|Broadcast|Reduce|Send|Recv)\w*)"`},
	} {
		has := symbols(t, filepath.Join(dir, x.library))
		files, err := filepath.Glob(x.files)
		require.NoError(t, err)
		var found [][][]byte
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			found = append(found, regexp.MustCompile(x.names).FindAllSubmatch(text, -1)...)
		}
		require.NotEmpty(t, found, x.files)
		for _, m := range found {
			assert.True(t, has[string(m[1])] || has[string(m[1])+"_v2"], "%s, of %s, is missing in %s", m[1], x.files, x.library)
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

// TestNoCompiler: status 3, by which CI knows, and one line.
func TestNoCompiler(t *testing.T) {
	path, stderr, err := build(t, "CC=no-compiler")
	exit := new(exec.ExitError)
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 3, exit.ExitCode())
	assert.Empty(t, path)
	assert.Regexp(t, `^[^\n]*no-compiler[^\n]*\n$`, stderr)
}
