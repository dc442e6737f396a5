package cudalibs

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fake is a computer whose files lie in a temporary directory. Files are named
// from there; so are the paths in the values of vars.
func fake(t *testing.T, goos, goarch string, vars map[string]string, files ...string) system {
	t.Helper()
	root := t.TempDir()
	for _, file := range files {
		file = filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, nil, 0o644))
	}
	return system{goos, goarch, root, func(name string) string {
		if strings.HasPrefix(vars[name], "/") {
			return root + vars[name]
		}
		return vars[name]
	}}
}

// Each computer has its files in the order in which they are found.
func TestDirs(t *testing.T) {
	for name, c := range map[string]struct {
		goos, goarch string
		vars         map[string]string
		files        []string
	}{
		"nothing": {goos: "linux", goarch: "amd64"},
		"toolkits": {"linux", "amd64", map[string]string{"CUPOOL_LIBCUDA": "/fake/libcuda.so", "CUDA_HOME": "/home", "CUDA_PATH": "/path"}, []string{
			"/fake/libcuda.so", "/home/lib64/x", "/home/lib/x", "/home/targets/x86_64-linux/lib/x", "/path/lib/x",
			"/usr/local/cuda/lib64/x", "/usr/local/cuda-13.0/lib64/x", "/usr/local/cuda-12.10/lib64/x", "/usr/local/cuda-9.2/lib64/x", "/opt/cuda/lib64/x"}},
		"packages": {"linux", "amd64", map[string]string{"VIRTUAL_ENV": "/venv", "CONDA_PREFIX": "/conda", "HOME": "/me"}, []string{
			"/venv/lib/python3.12/site-packages/nvidia/cu13/lib/x", "/venv/lib/python3.12/site-packages/nvidia/cublas/lib/x",
			"/venv/lib/python3.9/site-packages/nvidia/cu13/lib/x", "/conda/lib/python3.12/site-packages/nvidia/nccl/lib/x", "/conda/lib/x",
			"/me/.local/lib/python3.12/site-packages/nvidia/nccl/lib/x", "/usr/local/lib/python3.12/dist-packages/nvidia/nccl/lib/x",
			"/usr/lib/python3/dist-packages/nvidia/nccl/lib/x"}},
		"drivers":             {"linux", "amd64", nil, []string{"/usr/local/nvidia/lib64/x", "/usr/lib/wsl/lib/x", "/run/opengl-driver/lib/x"}},
		"arm":                 {"linux", "arm64", map[string]string{"CUDA_HOME": "/home"}, []string{"/home/targets/sbsa-linux/lib/x"}},
		"a toolkit twice":     {"linux", "amd64", map[string]string{"CUDA_HOME": "/home", "CUDA_PATH": "/home"}, []string{"/home/lib64/x"}},
		"nothing of it there": {"linux", "amd64", map[string]string{"CUDA_HOME": "/nowhere", "CUPOOL_LIBCUDA": "libcuda.so"}, nil},
		"windows": {"windows", "amd64", map[string]string{"CUDA_PATH": "/v13", "VIRTUAL_ENV": "/venv", "CONDA_PREFIX": "/conda"}, []string{
			"/v13/bin/x64/x", "/v13/bin/x", "/venv/Lib/site-packages/nvidia/cu13/bin/x86_64/x", "/venv/Lib/site-packages/nvidia/cu13/bin/x",
			"/venv/Lib/site-packages/nvidia/cublas/bin/x", "/conda/Library/bin/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.goos == "linux" && runtime.GOOS == "windows" {
				t.Skip("paths of Linux")
			}
			s := fake(t, c.goos, c.goarch, c.vars, c.files...)
			var want []string
			for _, file := range c.files {
				want = append(want, filepath.Join(s.root, filepath.Dir(file)))
			}
			assert.Equal(t, want, s.dirs())
		})
	}
}

func TestCandidates(t *testing.T) {
	vars := map[string]string{"CUPOOL_LIBCUDA": "/fake/libcuda.so", "CUDA_HOME": "/home"}
	s := fake(t, "linux", "amd64", vars, "/fake/b", "/home/lib64/a", "/home/lib64/b", "/home/lib/c", "/opt/cuda/lib/a")
	at := func(path string) string { return filepath.Join(s.root, path) }
	assert.Equal(t, []string{at("/fake/b"), "a", "b", at("/home/lib64/a"), at("/home/lib64/b"), at("/opt/cuda/lib/a")}, slices.Collect(s.candidates([]string{"a", "b"})))
	assert.Equal(t, []string{"d"}, slices.Collect(s.candidates([]string{"d"})))

	t.Setenv(Driver, at("/fake/libcuda.so"))
	assert.Equal(t, at("/fake/b"), slices.Collect(Candidates("a", "b"))[0])
	assert.Equal(t, at("/fake"), here().dirs()[0])
}
