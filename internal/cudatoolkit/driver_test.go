package cudatoolkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCompiler(t *testing.T) {
	for name, c := range map[string]struct {
		vars map[string]string
		path []string
		want []string
	}{
		"none":          {},
		"gcc":           {path: []string{"cc", "clang", "gcc"}, want: []string{"gcc"}},
		"only clang":    {path: []string{"cc", "clang"}, want: []string{"clang"}},
		"named":         {map[string]string{"CC": "ccache gcc -m64"}, []string{"ccache", "gcc"}, []string{"ccache", "gcc", "-m64"}},
		"named, absent": {map[string]string{"CC": "icc"}, []string{"gcc"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			sys := System{
				Getenv: func(v string) string { return c.vars[v] },
				Look: func(p string) (string, error) {
					for _, has := range c.path {
						if has == p {
							return "/usr/bin/" + p, nil
						}
					}
					return "", os.ErrNotExist
				},
			}
			cc, err := sys.Compiler()
			assert.Equal(t, c.want, cc)
			if c.want == nil {
				require.ErrorIs(t, err, ErrNoCompiler)
				assert.ErrorContains(t, err, "install gcc")
			}
		})
	}
}

func TestDriverArchive(t *testing.T) {
	f := newFixture(t)
	f.compiler()
	header := f.file("a header/cuda.h", string(driverAPI))
	dir, err := f.system().driverArchive(header, f.path("a cache"))
	require.NoError(t, err)
	path := filepath.Join(dir, "libcuda.a")

	// It is built once.
	before, err := os.Stat(path)
	require.NoError(t, err)
	again, err := f.system().driverArchive(header, f.path("a cache"))
	require.NoError(t, err)
	assert.Equal(t, dir, again)
	after, err := os.Stat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after))

	// A compiler that fails says why.
	f.vars["CC"] = "gcc -no-such-option"
	_, err = f.system().driverArchive(header, f.path("a cache"))
	assert.ErrorContains(t, err, "-no-such-option")
}

// Programs that are linked with the archive start with and without a driver.
func TestLinkedWithArchive(t *testing.T) {
	f := newFixture(t)
	f.compiler()
	header := f.file("cuda.h", "int cuInit(unsigned); int cuAdd(int, int, int, int, int, int, int, double); int cuNew(void);")
	dir, err := f.system().driverArchive(header, f.path("cache"))
	require.NoError(t, err)
	run := func(command ...string) string {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+f.path("driver"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	source := f.file("main.c", `
		#include <stdio.h>
		int cuInit(unsigned), cuAdd(int, int, int, int, int, int, int, double), cuNew(void);
		int main(void) {
			int started = cuInit(5), sum = cuAdd(1, 2, 3, 4, 5, 6, 7, 8);
			printf("%d %d %d", started, sum, cuNew());
			return 0;
		}`)
	program := f.path("program")
	run("gcc", "-o", program, source, "-L"+dir, "-lcuda", "-lcuda", "-ldl")
	assert.Equal(t, "0 34 34", run(program), "no driver")

	driver := f.file("driver/libcuda.c", `
		static int ready;
		int cuInit(unsigned flags) { ready = flags; return 100; }
		int cuAdd(int a, int b, int c, int d, int e, int f, int g, double h) { return ready * 100 + a + b + c + d + e + f + g + (int)h; }`)
	run("gcc", "-shared", "-fPIC", "-o", f.path("driver/libcuda.so.1"), driver)
	assert.Equal(t, "0 536 36", run(program), "a driver without cuNew")
}
