package gunzip

import (
	"bytes"
	"compress/gzip"
	"io"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func compress(t testing.TB, data []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write(data)
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

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
		got, err = read(iotest.OneByteReader(bytes.NewReader(compress(t, []byte(text)))))
		require.NoError(t, err)
		require.Equal(t, text, string(got))
	}
	_, err := read(bytes.NewReader([]byte("\x1f\x8btext and so on")))
	require.ErrorIs(t, err, gzip.ErrHeader)
	whole := compress(t, []byte("text"))
	_, err = read(bytes.NewReader(whole[:len(whole)-1]))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// A bomb ends at the limit, however the reader hands it out. What grows to less
// is read, and so is anything that is not compressed.
func TestBound(t *testing.T) {
	bomb := compress(t, make([]byte, 4*Fixed))
	for _, r := range []io.Reader{bytes.NewReader(bomb), iotest.HalfReader(bytes.NewReader(bomb))} {
		br, err := NewReader(r)
		require.NoError(t, err)
		n, err := io.Copy(io.Discard, br)
		require.ErrorIs(t, err, ErrTooLarge)
		require.ErrorContains(t, err, "of gzip grow to more than 1")
		require.LessOrEqual(t, n, int64(Fixed+Factor*len(bomb)))
	}
	for _, data := range [][]byte{compress(t, make([]byte, Fixed)), make([]byte, 2*Fixed)} {
		_, err := read(bytes.NewReader(data))
		require.NoError(t, err)
	}
}
