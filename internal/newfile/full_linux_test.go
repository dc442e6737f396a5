package newfile

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A file that may not grow leaves the one before, and a device is written to.
func TestFull(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	require.NoError(t, Write(name, text("before")))
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	less := limit
	less.Cur = 1000
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &less))
	err := Write(name, text(strings.Repeat("x", 2000)))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	require.ErrorIs(t, err, syscall.EFBIG)
	require.EqualError(t, err, "cannot write "+name+": file too large")
	only(t, name, "before")

	err = Write("/dev/full", text("x"))
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.EqualError(t, err, "cannot write /dev/full: no space left on device")
	require.NoError(t, Write(os.DevNull, text("x")))
	info, err := os.Stat(os.DevNull)
	require.NoError(t, err)
	require.Equal(t, os.ModeDevice|os.ModeCharDevice, info.Mode().Type())
}

// A link stays one.
func TestLink(t *testing.T) {
	name, link := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "link")
	require.NoError(t, Write(name, text("one")))
	require.NoError(t, os.Symlink(name, link))
	require.NoError(t, Write(link, text("two")))
	only(t, name, "two")
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.Equal(t, os.ModeSymlink, info.Mode().Type())

	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	got := make(chan string)
	go func() {
		data, _ := os.ReadFile(pipe)
		got <- string(data)
	}()
	require.NoError(t, Write(pipe, func(w io.Writer) error { return text("three")(w) }))
	require.Equal(t, "three", <-got)
}

// So does one, or a row of them, to a file that is not there yet.
func TestLinkToNothing(t *testing.T) {
	dir, links := t.TempDir(), t.TempDir()
	name, link, second := filepath.Join(dir, "out"), filepath.Join(links, "link"), filepath.Join(links, "second")
	require.NoError(t, os.Symlink(name, link))
	require.NoError(t, os.Symlink("link", second))
	require.NoError(t, Write(second, text("one")))
	for _, at := range []string{link, second} {
		info, err := os.Lstat(at)
		require.NoError(t, err)
		require.Equal(t, os.ModeSymlink, info.Mode().Type())
	}
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, "one", string(got))
}
