package cudatoolkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSetup: what is chosen on which computer, and what is said about it.
func TestSetup(t *testing.T) {
	lib := "usr/lib/" + runtimeTriplet()
	cublas := "venv/lib/python3.12/site-packages/nvidia/cublas/lib"
	for name, c := range map[string]struct {
		set     func(f *fixture)
		toolkit string
		vars    map[string]string // parts of values
		notes   []string
		err     error
	}{
		"nothing but a compiler": {
			func(f *fixture) {}, "",
			map[string]string{"CGO_CFLAGS": "/include-", "CGO_LDFLAGS": "/driver-"},
			[]string{"cupool's own, of CUDA 13.0", "there is no toolkit", "no NVIDIA driver here"}, nil,
		},
		"a driver, no toolkit": {
			func(f *fixture) { f.file(lib+"/libcuda.so.1", "") }, "",
			map[string]string{"CGO_CFLAGS": "/include-", "CGO_LDFLAGS": "/driver-"},
			[]string{"cupool's own"}, nil,
		},
		"a toolkit": {
			func(f *fixture) { f.toolkit("usr/local/cuda", 12040); f.file(lib+"/libcuda.so.1", "") }, "",
			map[string]string{"CGO_CFLAGS": "usr/local/cuda/include"},
			[]string{"headers: CUDA 12.4 in ROOT/usr/local/cuda"}, nil,
		},
		"a toolkit that is not wanted": {
			func(f *fixture) { f.toolkit("usr/local/cuda", 12040); f.file(lib+"/libcuda.so.1", "") }, None,
			map[string]string{"CGO_CFLAGS": "/include-"},
			[]string{"headers: cupool's own"}, nil,
		},
		"a toolkit that is not there": {func(f *fixture) {}, "/nowhere", nil, nil, ErrNotFound},
		"no compiler":                 {func(f *fixture) { f.cc = nil }, "", nil, nil, ErrNoCompiler},
		"cgo switched off": {
			func(f *fixture) { f.vars["CGO_ENABLED"] = "0" }, "",
			map[string]string{"CGO_ENABLED": "1"}, []string{"CGO_ENABLED=1"}, nil,
		},
		"cuBLAS from pip": {
			func(f *fixture) {
				f.vars["VIRTUAL_ENV"] = f.path("venv")
				f.vars["LD_LIBRARY_PATH"] = "/mine"
				f.file(cublas+"/libcublas.so.12", "")
			}, "",
			map[string]string{"LD_LIBRARY_PATH": "/mine:ROOT/" + cublas}, []string{"LD_LIBRARY_PATH=/mine:ROOT/" + cublas}, nil,
		},
		"cuBLAS of the system": {
			func(f *fixture) { f.file(lib+"/libcublas.so.12", "") }, "",
			map[string]string{"LD_LIBRARY_PATH": ""}, nil, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.compiler()
			c.set(f)
			t.Setenv("XDG_CACHE_HOME", f.path("cache"))
			u, err := f.system().Setup(c.toolkit)
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				return
			}
			require.NoError(t, err)
			got := map[string]string{}
			for _, v := range u.Vars {
				got[v.Name] = v.Value
			}
			root := func(s string) string { return strings.ReplaceAll(s, "ROOT", f.root) }
			for name, part := range c.vars {
				if part == "" {
					assert.NotContains(t, got, name)
				}
				assert.Contains(t, got[name], root(part))
			}
			for _, note := range c.notes {
				assert.Contains(t, strings.Join(u.Notes, "\n"), root(note))
			}
		})
	}
}

// A compiler that cgo does not call by itself is named to it.
func TestSetupOtherCompiler(t *testing.T) {
	f := newFixture(t)
	f.compiler()
	sys := f.system()
	gcc, err := exec.LookPath("gcc")
	require.NoError(t, err)
	f.file("bin/x", "")
	require.NoError(t, os.Symlink(gcc, f.path("bin/clang")))
	t.Setenv("PATH", f.path("bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	sys.Look = func(name string) (string, error) {
		if name == "gcc" || name == "cc" {
			return "", os.ErrNotExist
		}
		return exec.LookPath(name)
	}
	t.Setenv("XDG_CACHE_HOME", f.path("cache"))
	u, err := sys.Setup("")
	require.NoError(t, err)
	assert.Contains(t, u.Vars, Var{"CC", "clang"})
}

func TestLibrary(t *testing.T) {
	f := newFixture(t)
	assert.Empty(t, f.system().Library("libnccl.so.*"))
	f.vars["VIRTUAL_ENV"] = f.path("venv")
	pip := f.file("venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2", "")
	assert.Equal(t, pip, f.system().Library("libnccl.so.*"))
	f.toolkit("usr/local/cuda", 13000)
	f.file("usr/local/cuda/lib64/stubs/libnccl.so.2", "")
	assert.Equal(t, pip, f.system().Library("libnccl.so.*"))
	f.file("usr/local/cuda/lib64/libnccl.so.2", "")
	newer := f.file("usr/local/cuda/lib64/libnccl.so.2.27", "")
	assert.Equal(t, newer, f.system().Library("libnccl.so.*"))
	f.vars["LD_LIBRARY_PATH"] = f.path("mine")
	mine := f.file("mine/libnccl.so.1", "")
	assert.Equal(t, mine, f.system().Library("libnccl.so.*"))
}
