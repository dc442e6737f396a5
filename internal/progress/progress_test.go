package progress

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/ptytest"
)

// Where there is no terminal, a line comes every ten seconds and none before.
func TestLines(t *testing.T) {
	var out bytes.Buffer
	b := New(&out, "epoch 1/2", "steps", 40)
	clock := b.last
	b.now = func() time.Time { return clock }
	for range 40 {
		clock = clock.Add(time.Second)
		b.Add(1)
	}
	b.Close()
	require.Equal(t, "epoch 1/2: 10 of 40 steps\nepoch 1/2: 20 of 40 steps\nepoch 1/2: 30 of 40 steps\nepoch 1/2: 40 of 40 steps\n", out.String())
}

// A file is no terminal, though it has a descriptor.
func TestFile(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	b := New(f, "epoch 1/2", "steps", 40)
	b.Add(40)
	b.Close()
	b.Close()
	require.NoError(t, f.Close())
	got, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	require.Empty(t, got)
}

// On a terminal a bar is drawn in one line, also where there is not much room,
// and is gone at the end.
func TestTerminal(t *testing.T) {
	for _, columns := range []int{120, 40, 12} {
		screen := ptytest.New(t, 24, columns)
		b := New(screen.TTY, "epoch 1/2", "steps", 40)
		b.Add(10)
		screen.WaitFor(t, "epoch")
		b.Add(10)
		b.Close()
		out := screen.Close(t)
		for line := range strings.Lines(out) {
			require.LessOrEqual(t, len([]rune(visible(line))), columns, "%d columns: %q", columns, line)
		}
		if columns >= 120 {
			require.Contains(t, out, "10/40 steps")
		}
		require.True(t, strings.HasSuffix(out, "\x1b[J"), "the line is erased: %q", out)
	}
}

// visible is a line without what moves the cursor.
func visible(line string) string {
	line = strings.TrimRight(line, "\r\n")
	for _, control := range []string{"\x1b[J", "\x1b[1A", "\x1b[?25l", "\x1b[?25h", "\r"} {
		line = strings.ReplaceAll(line, control, "")
	}
	return line
}
