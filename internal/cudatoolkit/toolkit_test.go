package cudatoolkit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fixture is a computer's file system in a temporary directory.
type fixture struct {
	t    *testing.T
	root string
	vars map[string]string
	nvcc string
	cc   map[string]bool // compilers in PATH
}

func newFixture(t *testing.T) *fixture {
	return &fixture{t: t, root: t.TempDir(), vars: map[string]string{}}
}

func (f *fixture) system() System {
	return System{
		Root:   f.root,
		Getenv: func(name string) string { return f.vars[name] },
		Look: func(name string) (string, error) {
			switch {
			case name == "nvcc" && f.nvcc != "":
				return f.nvcc, nil
			case f.cc[name]:
				return exec.LookPath(name)
			}
			return "", errors.New("not in PATH")
		},
	}
}

// compiler puts this computer's gcc into PATH.
func (f *fixture) compiler() {
	f.t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil || runtime.GOOS != "linux" {
		f.t.Skip("no gcc on Linux")
	}
	f.cc = map[string]bool{"gcc": true}
}

// path is an absolute path in the fixture.
func (f *fixture) path(p string) string { return filepath.Join(f.root, p) }

func (f *fixture) file(path, text string) string {
	f.t.Helper()
	path = f.path(path)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(f.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// toolkit puts a cuda.h of a version into dir/include.
func (f *fixture) toolkit(dir string, version int) string {
	f.t.Helper()
	f.file(filepath.Join(dir, "include/cuda.h"), fmt.Sprintf("/* CUDA */\n#define CUDA_VERSION %d\n", version))
	return f.path(dir)
}

func TestFind(t *testing.T) {
	const site = "venv/lib/python3.12/site-packages/nvidia/"
	for name, c := range map[string]struct {
		set  func(f *fixture)
		dir  string
		want string // root
	}{
		"none":       {set: func(f *fixture) {}},
		"CUDA_HOME":  {func(f *fixture) { f.vars["CUDA_HOME"] = f.toolkit("a", 12040); f.toolkit("usr/local/cuda", 13000) }, "", "a"},
		"CUDA_PATH":  {func(f *fixture) { f.vars["CUDA_PATH"] = f.toolkit("b", 12040); f.toolkit("usr/local/cuda", 13000) }, "", "b"},
		"wrong home": {func(f *fixture) { f.vars["CUDA_HOME"] = "/nowhere"; f.toolkit("usr/local/cuda", 13000) }, "", "usr/local/cuda"},
		"nvcc":       {func(f *fixture) { f.toolkit("sdk", 11000); f.nvcc = f.file("sdk/bin/nvcc", "") }, "", "sdk"},
		"newest": {func(f *fixture) {
			f.toolkit("usr/local/cuda-9.2", 9020)
			f.toolkit("usr/local/cuda-13.0", 13000)
			f.toolkit("usr/local/cuda-12.10", 12100)
		}, "", "usr/local/cuda-13.0"},
		"arch linux": {func(f *fixture) { f.toolkit("opt/cuda", 13000) }, "", "opt/cuda"},
		"debian":     {func(f *fixture) { f.toolkit("usr", 11080) }, "", "usr"},
		"pip, 13":    {func(f *fixture) { f.vars["VIRTUAL_ENV"] = f.path("venv"); f.toolkit(site+"cu13", 13000) }, "", site + "cu13"},
		"pip, 12":    {func(f *fixture) { f.vars["VIRTUAL_ENV"] = f.path("venv"); f.toolkit(site+"cuda_runtime", 12060) }, "", site + "cuda_runtime"},
		"pip --user": {func(f *fixture) {
			f.vars["HOME"] = f.path("home")
			f.toolkit("home/.local/lib/python3.11/site-packages/nvidia/cu13", 13000)
		}, "", "home/.local/lib/python3.11/site-packages/nvidia/cu13"},
		"conda": {func(f *fixture) {
			f.vars["CONDA_PREFIX"] = f.path("conda")
			f.file("conda/targets/"+target()+"/include/cuda.h", "#define CUDA_VERSION 12060")
		}, "", "conda"},
		"asked for":    {func(f *fixture) { f.toolkit("mine", 12000); f.toolkit("usr/local/cuda", 13000) }, "mine", "mine"},
		"not there":    {func(f *fixture) { f.toolkit("usr/local/cuda", 13000) }, "mine", ""},
		"other cuda.h": {func(f *fixture) { f.file("usr/local/cuda/include/cuda.h", "int my_cuda(void);") }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c.set(f)
			if c.dir != "" {
				c.dir = f.path(c.dir)
			}
			got, err := f.system().Find(c.dir)
			if c.want == "" {
				require.ErrorIs(t, err, ErrNotFound)
				assert.ErrorContains(t, err, "include/cuda.h")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, f.path(c.want), got.Root)
		})
	}
}

func TestFlags(t *testing.T) {
	f := newFixture(t)
	f.compiler()
	f.toolkit("usr/local/cuda", 13000)
	f.file("usr/local/cuda/include/cccl/cuda/x", "")
	f.file("usr/local/cuda/lib64/stubs/libcuda.so", "")
	f.file("usr/local/cuda/lib64/libcublas.so", "")
	tk, err := f.system().Find("")
	require.NoError(t, err)
	assert.Equal(t, "13.0", tk.VersionString())
	cache := f.path("cache")
	got, err := f.system().Flags(tk, cache)
	require.NoError(t, err)
	c := strings.Fields(got.CFLAGS)
	require.Len(t, c, 5)
	wrapperDir := strings.TrimPrefix(c[0], "-I")
	b, err := os.ReadFile(filepath.Join(wrapperDir, "cuda.h"))
	require.NoError(t, err)
	assert.Equal(t, wrapper, b)
	assert.Equal(t, []string{"-I" + f.path("usr/local/cuda/include"), "-I" + f.path("usr/local/cuda/include/cccl"), "-g", "-O2"}, c[1:])
	ld := strings.Fields(got.LDFLAGS)
	require.Len(t, ld, 4)
	assert.FileExists(t, filepath.Join(strings.TrimPrefix(ld[0], "-L"), "libcuda.a"))
	assert.Equal(t, []string{"-L" + f.path("usr/local/cuda/lib64"), "-g", "-O2"}, ld[1:])

	// Once more, with what it printed: nothing is added.
	f.vars["CGO_CFLAGS"], f.vars["CGO_LDFLAGS"] = got.CFLAGS, got.LDFLAGS
	again, err := f.system().Flags(tk, cache)
	require.NoError(t, err)
	assert.Equal(t, got, again)
	f.vars["CGO_CFLAGS"] = "-DMINE"
	again, err = f.system().Flags(tk, cache)
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(again.CFLAGS, "cccl -DMINE"))
}

// TestFlagsOf: the flags for toolkits in other places.
func TestFlagsOf(t *testing.T) {
	flags := func(f *fixture) Flags {
		tk, err := f.system().Find("")
		require.NoError(t, err)
		fl, err := f.system().Flags(tk, f.path("cache"))
		require.NoError(t, err)
		return fl
	}
	t.Run("no compiler", func(t *testing.T) {
		f := newFixture(t)
		f.toolkit("usr/local/cuda", 13000)
		tk, err := f.system().Find("")
		require.NoError(t, err)
		_, err = f.system().Flags(tk, f.path("cache"))
		assert.ErrorIs(t, err, ErrNoCompiler)
	})
	t.Run("pip's cublas", func(t *testing.T) {
		f := newFixture(t)
		f.compiler()
		f.vars["VIRTUAL_ENV"] = f.path("venv")
		site := "venv/lib/python3.12/site-packages/nvidia/"
		f.toolkit(site+"cuda_runtime", 12060)
		f.file(site+"cublas/include/cublas_v2.h", "")
		real := f.file(site+"cublas/lib/libcublas.so.12", "")
		fl := flags(f)
		assert.Contains(t, fl.CFLAGS, "-I"+f.path(site+"cublas/include"))
		to, err := os.Readlink(f.path("cache/lib/libcublas.so"))
		require.NoError(t, err)
		assert.Equal(t, real, to)
	})
	t.Run("spaces", func(t *testing.T) {
		f := newFixture(t)
		f.compiler()
		f.vars["CUDA_HOME"] = f.toolkit("my sdk", 13000)
		assert.Contains(t, flags(f).CFLAGS, `"-I`+f.path("my sdk/include")+`"`)
	})
}
