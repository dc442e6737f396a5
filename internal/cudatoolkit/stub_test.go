package cudatoolkit

import (
	"debug/elf"
	"os"
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

func TestStub(t *testing.T) {
	f := newFixture(t)
	f.compiler()
	header := f.file("a header/cuda.h", string(driverAPI))
	dir, err := f.system().stub(header, f.path("a cache"))
	require.NoError(t, err)
	path := filepath.Join(dir, "libcuda.so")
	lib, err := elf.Open(path)
	require.NoError(t, err)
	defer lib.Close()
	name, err := lib.DynString(elf.DT_SONAME)
	require.NoError(t, err)
	assert.Equal(t, []string{"libcuda.so.1"}, name)
	symbols, err := lib.DynamicSymbols()
	require.NoError(t, err)
	has := map[string]bool{}
	for _, s := range symbols {
		has[s.Name] = s.Section != elf.SHN_UNDEF
	}
	for _, m := range prototype.FindAllStringSubmatch(string(driverAPI), -1) {
		assert.True(t, has[m[1]], m[1])
	}
	needed, err := lib.ImportedLibraries()
	require.NoError(t, err)
	assert.Empty(t, needed)

	// It is built once.
	before, err := os.Stat(path)
	require.NoError(t, err)
	again, err := f.system().stub(header, f.path("a cache"))
	require.NoError(t, err)
	assert.Equal(t, dir, again)
	after, err := os.Stat(path)
	require.NoError(t, err)
	assert.True(t, os.SameFile(before, after))

	// A compiler that fails says why.
	f.vars["CC"] = "gcc -no-such-option"
	_, err = f.system().stub(header, f.path("a cache"))
	assert.ErrorContains(t, err, "-no-such-option")
}
