package gunzip

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
)

func read(r io.Reader) ([]byte, error) {
	br, err := NewReader(r)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(br)
}

func TestRead(t *testing.T) {
	for _, text := range []string{"", "\x1f", "text", "\x1f\x8atext"} {
		got, err := read(bytes.NewReader([]byte(text)))
		require.NoError(t, err)
		require.Equal(t, text, string(got))
		got, err = read(iotest.OneByteReader(bytes.NewReader(testkit.Gzip(t, []byte(text)))))
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	_, err := read(bytes.NewReader([]byte("\x1f\x8btext and so on")))
	require.ErrorIs(t, err, gzip.ErrHeader)
	whole := testkit.Gzip(t, []byte("text"))
	_, err = read(bytes.NewReader(whole[:len(whole)-1]))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// A bomb ends at the limit, however the reader hands it out. What grows to less
// is read, and so is anything that is not compressed.
func TestBound(t *testing.T) {
	bomb := testkit.Gzip(t, make([]byte, 4*Fixed))
	for _, r := range []io.Reader{bytes.NewReader(bomb), iotest.HalfReader(bytes.NewReader(bomb))} {
		br, err := NewReader(r)
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, br)
		require.ErrorIs(t, err, ErrTooLarge)
		require.ErrorContains(t, err, "of gzip grow to more than 1")
		require.LessOrEqual(t, n, int64(Fixed+Factor*len(bomb)))
	}
	for _, data := range [][]byte{testkit.Gzip(t, make([]byte, Fixed)), make([]byte, 2*Fixed)} {
		_, err := read(bytes.NewReader(data))
		require.NoError(t, err)
	}
}
