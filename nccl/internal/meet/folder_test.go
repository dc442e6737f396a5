package meet

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
)

// What an earlier run has left, and a second process of a number, are found before
// anybody has the value.
func TestFolderIsTaken(t *testing.T) {
	for left, rank := range map[string]int{"id": 1, "1": 1, "0": 0} {
		at := Config{Folder: t.TempDir()}
		path := filepath.Join(at.Folder, "test."+left+"-of-2")
		require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
		_, err := share(t.Context(), at.as(rank, 2))
		var bad *cupool.ConfigError
		require.ErrorAs(t, err, &bad, left)
		require.Contains(t, bad.Reason, path+" is there")
		require.FileExists(t, path, "it is not this process's")
	}
	_, err := share(t.Context(), Config{Folder: filepath.Join(t.TempDir(), "nowhere"), Size: 2})
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A rank that is killed leaves its file, which the next one names.
func TestKilledInFolder(t *testing.T) {
	at := Config{Folder: t.TempDir()}
	one := start(t, at.as(1, 2))
	file := filepath.Join(at.Folder, "test.1-of-2")
	require.Eventually(t, func() bool { return exists(file) }, patient, lookEvery)
	one.kill()
	_, err := share(t.Context(), at.as(1, 2))
	require.ErrorContains(t, err, file+" is there")
}

// Whatever lies where rank 0's value is to be, nobody waits for it, or has more of it than a
// value may have. Nothing is written through a link.
func TestStrangerInFolder(t *testing.T) {
	folder := t.TempDir()
	long, link, other := filepath.Join(folder, "long"), filepath.Join(folder, "link"), filepath.Join(folder, "other")
	require.NoError(t, os.WriteFile(long, make([]byte, most+1), 0o600))
	require.NoError(t, os.WriteFile(other, []byte("mine"), 0o600))
	require.NoError(t, os.Symlink(other, link))
	for _, path := range []string{folder, long, link} {
		_, err := readShort(path)
		require.ErrorContains(t, err, path+" is not what rank 0 has written")
	}
	at := Config{Folder: folder}
	require.NoError(t, os.Symlink(other, at.as(0, 2).path("part")))
	one := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _, err := share(ctx, at.as(1, 2)); one <- err }()
	_, err := share(t.Context(), at.as(0, 2))
	require.ErrorIs(t, err, os.ErrExist)
	cancel() // rank 0 may have come and left unseen
	require.ErrorIs(t, <-one, dist.ErrRank)
	mine, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, "mine", string(mine))
}

// Ranks that wait name the file of a rank of a group of another size.
func TestOtherSizeInFolder(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	at := Config{Folder: t.TempDir()}
	other := make(chan error)
	go func() { _, err := share(ctx, at.as(2, 4)); other <- err }()
	require.Eventually(t, func() bool { return exists(at.as(2, 4).path(2)) }, patient, lookEvery)
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := share(short, at.as(0, 3))
	require.ErrorIs(t, err, dist.ErrRank)
	require.ErrorContains(t, err, "test.2-of-4")
	leave()
	require.ErrorContains(t, <-other, "waiting for ranks [0 1 3] of 4")
}
