package trace

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

func read(text string) (*Trace, error) { return Read(strings.NewReader(text), "x.trace") }

const everything = `# all letters
a 7 1000 0
a 8 0 139987085426688

  a	9 5 1
r 8 1
f 7
e 3 1
w 3 0
a 7 2000 1
e 3 0
f 9
`

func TestRead(t *testing.T) {
	want := &Trace{
		Name: "x.trace",
		Events: []Event{
			{Op: Alloc, ID: 0, Size: 1000},
			{Op: Alloc, ID: 1, Stream: 1},
			{Op: Alloc, ID: 2, Size: 5, Stream: 2},
			{Op: Use, ID: 1, Stream: 2},
			{Op: Free, ID: 0},
			{Op: Record, ID: 0, Stream: 2},
			{Op: Wait, ID: 0},
			{Op: Alloc, ID: 3, Size: 2000, Stream: 2},
			{Op: Record, ID: 0},
			{Op: Free, ID: 2},
		},
		Blocks: 4, Marks: 1, Streams: []int64{0, 139987085426688, 1}, PeakRequested: 2005,
	}
	crlf := strings.ReplaceAll(everything, "\n", "\r\n")
	for name, text := range map[string]string{
		"text": everything, "no newline at the end": strings.TrimSuffix(everything, "\n"), "CRLF": crlf,
		"gzip": string(testkit.Gzip(t, []byte(everything))),
	} {
		got, err := read(text)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
}

func TestDamagedText(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "x.trace: the file is empty",
		"x 1 2 3":                      `x.trace:1: unknown letter "x"`,
		"a 0 1 0\n\n# c\nalloc 1 2 3":  `x.trace:4: unknown event "alloc"`,
		"a":                            "x.trace:1: missing field ID",
		"a 0":                          "x.trace:1: missing field BYTES",
		"a 0 1":                        "x.trace:1: missing field STREAM",
		"a 0 1 \nf 0":                  "x.trace:1: missing field STREAM",
		"a 0 1 0 0":                    `x.trace:1: unexpected field "0"`,
		"f":                            "x.trace:1: missing field ID",
		"a 0 1 0\nf 0 0":               `x.trace:2: unexpected field "0"`,
		"a zero 1 0":                   `x.trace:1: ID is not a number: "zero"`,
		"a 0 1e3 0":                    `x.trace:1: BYTES is not a number: "1e3"`,
		"a 0 1.5 0":                    `x.trace:1: BYTES is not a number: "1.5"`,
		"a 0 - 0":                      `x.trace:1: BYTES is not a number: "-"`,
		"a 0 +1 0":                     `x.trace:1: BYTES is not a number: "+1"`,
		"a 0 1 s":                      `x.trace:1: STREAM is not a number: "s"`,
		"a 0 -1 0":                     "x.trace:1: negative size -1",
		"a -1 1 0":                     "x.trace:1: negative ID -1",
		"a 0 1 -1":                     "x.trace:1: negative stream -1",
		"a 0 1125899906842625 0":       "x.trace:1: size 1125899906842625 is more than 1 PiB",
		"a 0 9223372036854775808 0":    "x.trace:1: BYTES is too large: 9223372036854775808",
		"a 0 99999999999999999999 0":   "x.trace:1: BYTES is too large: 99999999999999999999",
		"a 0 1 0\na 0 1 0":             "x.trace:2: duplicate ID 0: the block is still live",
		"f 5":                          "x.trace:1: unknown ID 5: no such block was allocated",
		"a 5 1 0\nf 5\nf 5":            "x.trace:3: unknown ID 5: the block was freed before",
		"r 5 1":                        "x.trace:1: unknown ID 5: no such block was allocated",
		"a 5 1 0\nr 5 -1":              "x.trace:2: negative stream -1",
		"e 0 -1":                       "x.trace:1: negative stream -1",
		"w 0 0":                        "x.trace:1: unknown event 0: it was not recorded",
		"e 0 0\nw 0 -1":                "x.trace:2: negative stream -1",
		"a " + strings.Repeat("1", 99): `x.trace:1: ID is too large: ` + strings.Repeat("1", 32),
		"#" + strings.Repeat(" ", 1e5): "x.trace:1: the line is longer than 65536 bytes",
		"\x1f\x8b":                     "x.trace: truncated gzip",
		"\x1f\x8bxxxxxxxxxxxxxxxxxxxx": "x.trace: damaged gzip: gzip: invalid header",
	} {
		_, err := read(text)
		var damage *ParseError
		require.ErrorAs(t, err, &damage, text)
		require.EqualError(t, err, want)
	}
}

// A gzip file that ends anywhere is noticed, with the line that was reached;
// so is one with a wrong checksum.
func TestDamagedGzip(t *testing.T) {
	var text strings.Builder
	for i := range 100 {
		fmt.Fprintf(&text, "a %d %d 0\n", i, i*i)
	}
	whole := testkit.Gzip(t, []byte(text.String()))
	for n := 1; n < len(whole); n++ {
		_, err := Read(bytes.NewReader(whole[:n]), "x.gz")
		var damage *ParseError
		require.ErrorAs(t, err, &damage, n)
		if n > 1 {
			require.Contains(t, damage.Reason, "truncated gzip", n)
		}
		if n > len(whole)-8 {
			require.Equal(t, 101, damage.Line)
		}
	}
	whole[len(whole)-5] ^= 1
	_, err := Read(bytes.NewReader(whole), "x.gz")
	require.EqualError(t, err, "x.gz:101: damaged gzip: gzip: invalid checksum")
}

func TestManyStreams(t *testing.T) {
	var text strings.Builder
	for i := range 1 << 16 {
		fmt.Fprintf(&text, "a %d 1 %d\n", i, i)
	}
	tr, err := read(text.String())
	require.NoError(t, err)
	require.Len(t, tr.Streams, 1<<16)
	fmt.Fprintf(&text, "a %d 1 %d\n", 1<<16, 1<<16)
	_, err = read(text.String())
	require.EqualError(t, err, "x.trace:65537: too many streams")
}

// IDs need not be counted from 0, nor in order.
func TestScatteredIDs(t *testing.T) {
	tr, err := read("a 1 1 0\na 0 2 0\nf 1\na 1 3 0\na 2 4 0\nf 0\nf 2\nf 1\na 9223372036854775807 1 0\n")
	require.NoError(t, err)
	require.Equal(t, 5, tr.Blocks)
	require.Equal(t, []Event{{1, 0, 0, Alloc}, {2, 1, 0, Alloc}, {0, 0, 0, Free}, {3, 2, 0, Alloc}, {4, 3, 0, Alloc},
		{0, 1, 0, Free}, {0, 3, 0, Free}, {0, 2, 0, Free}, {1, 4, 0, Alloc}}, tr.Events)
	require.EqualValues(t, 9, tr.PeakRequested)
}
