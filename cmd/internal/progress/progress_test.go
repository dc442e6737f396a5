package progress

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/cmd/internal/printable"
)

// In a log a line comes every ten seconds, on a terminal one line changes ten times
// a second and is gone at the end.
func TestBar(t *testing.T) {
	for _, c := range []struct {
		terminal bool
		unit     time.Duration // what a unit takes
		want     string
	}{
		{false, time.Second, "epoch 1/2: 10 of 25 steps\nepoch 1/2: 20 of 25 steps\n"},
		{true, 10 * time.Millisecond, "\r\x1b[Kepoch 1/2: 10 of 25 steps\r\x1b[Kepoch 1/2: 20 of 25 steps\r\x1b[K"},
		{false, 10 * time.Millisecond, ""},
	} {
		var out bytes.Buffer
		b := New(&out, "epoch 1/2", "steps", 25)
		clock := b.last
		b.terminal, b.now = c.terminal, func() time.Time { return clock }
		for range 25 {
			clock = clock.Add(c.unit)
			b.Add(1)
		}
		b.Close()
		b.Close()
		require.Equal(t, c.want, out.String())
	}
}

// A file is no terminal, though it has a descriptor.
func TestFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer f.Close()
	require.False(t, isTerminal(f))
}

// A terminal is one also where text is made printable on the way, and the name is.
func TestPrintable(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // a character device, as terminals are
	require.NoError(t, err)
	defer null.Close()
	b := New(printable.Writer(null), "a\x1bb", "steps", 1)
	require.True(t, b.terminal)
	require.Equal(t, "a\uFFFDb", b.name)
	require.False(t, New(printable.Writer(&bytes.Buffer{}), "a", "steps", 1).terminal)
}
