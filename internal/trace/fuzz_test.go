package trace

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/gunzip"
	"github.com/cupool/cupool/internal/testkit"
)

// What a trace or a snapshot may make the reader allocate, in bytes: so much,
// and so much for each byte of what the file holds.
const (
	mostFixed  = 1 << 20
	mostFactor = 256
)

// contents returns how many bytes a file holds, at most those that are read.
func contents(data []byte) int {
	br, err := gunzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return len(data)
	}
	n, _ := io.Copy(io.Discard, br)
	return max(int(n), len(data))
}

// requireRead reads twice what may be anything, and returns the trace or nil.
func requireRead(t *testing.T, data []byte) *Trace {
	t.Helper()
	var tr, again *Trace
	var err, errAgain error
	testkit.RequireAllocates(t, mostFixed, mostFactor, contents(data), func() { tr, err = Read(bytes.NewReader(data), "x") })
	again, errAgain = Read(bytes.NewReader(data), "x")
	require.Equal(t, tr, again)
	if err != nil {
		var damage *ParseError
		require.ErrorAs(t, err, &damage)
		require.Equal(t, "x", damage.File)
		require.NotEmpty(t, damage.Reason)
		require.Less(t, len(damage.Reason), 300)
		require.EqualError(t, errAgain, err.Error())
		return nil
	}
	require.NoError(t, errAgain)
	requireSound(t, tr)
	return tr
}

// requireSound checks what Trace and its events promise.
func requireSound(t *testing.T, tr *Trace) {
	live, blocks, bytes, peak := map[uint32]int64{}, 0, int64(0), int64(0)
	marks := map[uint32]bool{}
	for _, e := range tr.Events {
		require.Less(t, int(e.Stream), len(tr.Streams))
		switch e.Op {
		case Alloc:
			require.EqualValues(t, blocks, e.ID)
			require.True(t, e.Size >= 0 && e.Size <= MaxSize)
			blocks++
			live[e.ID] = e.Size
			bytes += e.Size
			peak = max(peak, bytes)
		case Free, Use:
			require.Contains(t, live, e.ID)
			if e.Op == Free {
				bytes -= live[e.ID]
				delete(live, e.ID)
			}
		case Record:
			marks[e.ID] = true
		case Wait:
			require.Contains(t, marks, e.ID)
		default:
			t.Fatalf("operation %d", e.Op)
		}
	}
	require.Equal(t, blocks, tr.Blocks)
	require.Len(t, marks, tr.Marks)
	require.Equal(t, peak, tr.PeakRequested)
}

// requireWrites checks that a trace reads the same after it was written.
func requireWrites(t *testing.T, tr *Trace) {
	if tr == nil || len(tr.Events) == 0 {
		return
	}
	want := *tr
	want.Failed, want.Skipped = 0, 0 // text has no place for them
	var out []byte
	for _, e := range tr.Events {
		out = AppendEvent(out, e.Op, int64(e.ID), e.Size, tr.Streams[e.Stream])
	}
	again, err := Read(bytes.NewReader(out), "x")
	require.NoError(t, err)
	require.Equal(t, &want, again)
}

// FuzzRead: whatever a file holds, reading fails by a ParseError alone and
// allocates no more than it may, a trace is sound, and reads the same after it
// was written.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		everything, "", "a 0 1 0\nf 0\nf 0\n", "# a comment", "a 9223372036854775807 1 0\nf 9223372036854775807", "e 9 9\nw 9 0",
		"a 1 1125899906842624 65535\r\nr 1 0\r\n", "\x1f\x8b", "\x1f\x8bxxxxxxxxxxxxxxxxxxxx", "a 0 99999999999999999999 0",
	} {
		f.Add([]byte(text))
		f.Add(testkit.Gzip(f, []byte(text)))
	}
	traces, err := filepath.Glob(recorded + "/*.trace")
	require.NoError(f, err)
	for _, name := range traces {
		data, err := os.ReadFile(name)
		require.NoError(f, err)
		f.Add(data)
	}
	for _, pickle := range pythonPickles {
		f.Add([]byte(pickle))
	}
	f.Add(pickled(f, snapshot(entries{}, entries{pyAlloc(1, 1), pyFree(1), pyDone(1), entry("oom"), pyAlloc(2, 1<<40)})))
	for _, b := range bombs(100) {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, data []byte) { requireWrites(t, requireRead(t, data)) })
}

// bombs are pickles of about n bytes that would take far more than that if
// values were copied, or walked, or believed what they say of their size.
func bombs(n int) map[string]string {
	many := func(s string) string { return strings.Repeat(s, n/len(s)) }
	half := n / 2
	return map[string]string{
		"nothing but None":                "\x80\x02" + many("N"),
		"a list of None":                  "\x80\x02](" + many("N") + "e.",
		"empty dictionaries":              "\x80\x02](" + many("}") + "e.",
		"dictionaries with a key":         "\x80\x02](\x8c\x04addrq\x00" + many("}h\x00h\x00s") + "e.",
		"empty lists":                     "\x80\x02(" + many("]"),
		"kept again and again":            "\x80\x02N" + many("\x94"),
		"kept at scattered places":        "\x80\x02N" + many("r\x00\x00\x00\xf0p4294967295000\n"),
		"marks":                           "\x80\x02" + many("("),
		"a long list kept and extended":   "\x80\x02](" + strings.Repeat("N", half) + "eq\x00" + strings.Repeat("h\x00Na", half/4) + ".",
		"a list of itself":                "\x80\x02]q\x00" + many("h\x00a"),
		"nested lists":                    "\x80\x02" + many("]") + many("a") + ".",
		"nested dictionaries":             "\x80\x02" + many("}\x8c\x04addr") + "N" + many("s") + ".",
		"nested persistent IDs as a key":  "\x80\x02}N" + many("Q") + "Ns.",
		"nested tuples as a key":          "\x80\x02})" + many("\x85") + "Ns.",
		"a string of 4 GB":                "\x80\x02X\xff\xff\xff\xff" + many("x"),
		"a string of 9 EB":                "\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\x7f" + many("x"),
		"a string of 18 EB":               "\x80\x02\x8d\xff\xff\xff\xff\xff\xff\xff\xff" + many("x"),
		"bytes of 18 EB":                  "\x80\x02\x96\xff\xff\xff\xff\xff\xff\xff\xff" + many("x"),
		"a number of 4 GB":                "\x80\x02\x8b\xff\xff\xff\xff" + many("x"),
		"numbers of 255 bytes":            "\x80\x02(" + many("\x8a\xff"+strings.Repeat("\x7f", 255)) + "l.",
		"a decimal number":                "\x80\x02L" + many("9") + "L\n.",
		"a fraction":                      "\x80\x02F" + many("9") + "\n.",
		"a line without an end":           "\x80\x02V" + many("9"),
		"a frame of 18 EB":                "\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff" + many("N"),
		"an entry that is there for ever": "\x80\x02}\x8c\x0ddevice_traces](](}q\x00\x8c\x06action\x8c\x03ooms" + many("h\x00") + "eees.",
	}
}

// A small file makes us allocate little, compressed or not.
func TestBombs(t *testing.T) {
	size := testkit.Choose(4<<20, 1<<16)
	for name, data := range bombs(size) {
		t.Run(name, func(t *testing.T) {
			requireRead(t, []byte(data))
			requireRead(t, testkit.Gzip(t, []byte(data)))
		})
	}
	for name, line := range map[string]string{
		"allocations": "a 1 1 1\nf 1\n", "events": "e 1 1\n", "waits": "e 0 0\nw 0 0\n", "empty lines": "\n", "comments": "#\n",
	} {
		t.Run(name, func(t *testing.T) {
			text := []byte(strings.Repeat(line, size/len(line)))
			requireRead(t, text)
			requireRead(t, testkit.Gzip(t, text))
		})
	}
}

// What gzip made of next to nothing ends at the limit.
func TestGzipBomb(t *testing.T) {
	for want, text := range map[string]string{
		`^x:\d+: `:                         strings.Repeat("#"+strings.Repeat(" ", 60_000)+"\n", 400),
		`^x: damaged pickle at byte \d+: `: "\x80\x02" + strings.Repeat("\x8b\x60\xea\x00\x00"+strings.Repeat("x", 60_000)+"0", 400),
	} {
		bomb := testkit.Gzip(t, []byte(text))
		var err error
		testkit.RequireAllocates(t, mostFixed, mostFactor, len(bomb), func() { _, err = Read(bytes.NewReader(bomb), "x") })
		require.ErrorIs(t, err, gunzip.ErrTooLarge)
		require.Regexp(t, want+`\d.* of gzip grow to more than .*: decompress it`, err.Error())
	}
}

// What cannot be read is the system's error.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	_, err := ReadFile(dir)
	var damage *ParseError
	require.ErrorAs(t, err, &damage)
	require.EqualError(t, err, dir+": is a directory")
	var path *os.PathError
	require.ErrorAs(t, err, &path)
	_, err = ReadFile("no such file")
	require.ErrorIs(t, err, os.ErrNotExist)
}
