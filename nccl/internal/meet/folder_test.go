package meet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// What an earlier run has left, and a second process of a number, are found before
// anybody has the value.
func TestFolderIsTaken(t *testing.T) {
	for _, left := range []string{"test.id", "test.1", "test.0"} {
		rank := 1
		if left == "test.0" {
			rank = 0
		}
		at := Config{Folder: t.TempDir()}
		require.NoError(t, write(filepath.Join(at.Folder, left), reply{Value: []byte("old")}))
		_, err := share(t.Context(), at.as(rank, 2))
		var bad *cupool.ConfigError
		require.ErrorAs(t, err, &bad, left)
		require.Contains(t, bad.Reason, filepath.Join(at.Folder, left)+" is there")
		require.FileExists(t, filepath.Join(at.Folder, left), "it is not this process's")
	}
	_, err := share(t.Context(), Config{Folder: filepath.Join(t.TempDir(), "nowhere"), Size: 2})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A rank that is killed leaves its file, which the next one names.
func TestKilledInFolder(t *testing.T) {
	at := Config{Folder: t.TempDir()}
	one := start(t, at.as(1, 2))
	file := filepath.Join(at.Folder, "test.1")
	require.Eventually(t, func() bool { _, err := os.Stat(file); return err == nil }, patient, lookEvery)
	one.kill()
	_, err := share(t.Context(), at.as(1, 2))
	require.ErrorContains(t, err, file+" is there")
}

// A rank of a group of another size ends the meeting for all.
func TestOtherSizeInFolder(t *testing.T) {
	at := Config{Folder: t.TempDir()}
	errs := make(chan error)
	for _, c := range []Config{at.as(0, 3), at.as(1, 3), at.as(2, 4)} {
		go func() {
			_, err := share(t.Context(), c)
			errs <- err
		}()
	}
	for range 3 {
		err := <-errs
		require.ErrorIs(t, err, dist.ErrRank)
		require.ErrorContains(t, err, "as rank 2 of 4: rank 0 has a group of 3")
	}
}
