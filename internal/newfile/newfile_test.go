package newfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// only checks that a folder has one file, with a content.
func only(t *testing.T, name, content string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(name))
	require.NoError(t, err)
	require.Len(t, list, 1)
	got, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Equal(t, content, string(got))
}

func TestWrite(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	require.NoError(t, Write(name, text("one")))
	only(t, name, "one")
	require.NoError(t, os.Chmod(name, 0o640))
	require.NoError(t, Write(name, text("two")))
	only(t, name, "two")
	info, err := os.Stat(name)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o640), info.Mode().Perm())
}

// What fails, or panics, leaves what was there.
func TestFailure(t *testing.T) {
	name := filepath.Join(t.TempDir(), "out")
	require.NoError(t, Write(name, text("before")))
	broken := errors.New("broken")
	err := Write(name, func(w io.Writer) error { return errors.Join(text("half")(w), broken) })
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "cannot write "+name+": broken")
	only(t, name, "before")
	require.Panics(t, func() { _ = Write(name, func(io.Writer) error { panic("x") }) })
	only(t, name, "before")

	none := filepath.Join(filepath.Dir(name), "none", "out")
	err = Write(none, text("x"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, "cannot write "+none+": ")
	only(t, name, "before")
}
