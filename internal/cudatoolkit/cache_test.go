package cudatoolkit

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCacheDir(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other variables name the directories")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file") // nothing can be made below it, by root neither
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	tmp := filepath.Join(dir, "tmp")
	require.NoError(t, os.Mkdir(tmp, 0o755))
	t.Setenv("HOME", file)
	for name, c := range map[string]struct{ cache, tmp, want string }{
		"usual":                {filepath.Join(dir, "cache"), tmp, filepath.Join(dir, "cache/cupool")},
		"read-only home":       {filepath.Join(file, "cache"), tmp, filepath.Join(tmp, "cupool-")},
		"the cache's path bad": {"relative", tmp, filepath.Join(tmp, "cupool-")},
		"nowhere":              {filepath.Join(file, "cache"), file, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", c.cache)
			t.Setenv("TMPDIR", c.tmp)
			got, err := CacheDir()
			if c.want == "" {
				require.ErrorContains(t, err, "XDG_CACHE_HOME or TMPDIR")
				return
			}
			require.NoError(t, err)
			assert.Contains(t, got, c.want)
			again, err := CacheDir()
			require.NoError(t, err)
			assert.Equal(t, got, again)
			left, err := os.ReadDir(got)
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
	t.Run("someone else's", func(t *testing.T) {
		t.Setenv("XDG_CACHE_HOME", filepath.Join(file, "cache"))
		t.Setenv("TMPDIR", tmp)
		mine, err := CacheDir()
		require.NoError(t, err)
		require.NoError(t, os.Remove(mine))
		theirs := filepath.Join(dir, "theirs")
		require.NoError(t, os.Mkdir(theirs, 0o755))
		require.NoError(t, os.Symlink(theirs, mine))
		_, err = CacheDir()
		assert.ErrorContains(t, err, "belongs to another user")
	})
}
