package device

import (
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSharedRange: a range is inside its pieces, whatever another process says.
func TestSharedRange(t *testing.T) {
	for name, c := range map[string]struct {
		r     SharedRange
		total int64 // 0: refused
	}{
		"whole":       {SharedRange{Size: 30, Pieces: pieces(10, 20)}, 30},
		"inside":      {SharedRange{Skip: 5, Size: 25, Pieces: pieces(10, 20)}, 30},
		"too long":    {SharedRange{Skip: 5, Size: 26, Pieces: pieces(10, 20)}, 0},
		"nothing":     {SharedRange{Pieces: pieces(10)}, 0},
		"no pieces":   {SharedRange{Size: 1}, 0},
		"before":      {SharedRange{Skip: -1, Size: 1, Pieces: pieces(10)}, 0},
		"negative":    {SharedRange{Size: -1, Pieces: pieces(10)}, 0},
		"empty piece": {SharedRange{Size: 1, Pieces: pieces(10, 0)}, 0},
		"overflow":    {SharedRange{Size: 1, Pieces: pieces(math.MaxInt64, math.MaxInt64)}, 0},
		"huge skip":   {SharedRange{Skip: math.MaxInt64, Size: math.MaxInt64, Pieces: pieces(10)}, 0},
	} {
		total, err := c.r.Total()
		if c.total == 0 {
			require.ErrorIs(t, err, ErrInvalidRange, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, c.total, total, name)
	}
}

func pieces(sizes ...int64) (p []SharedPiece) {
	for _, n := range sizes {
		p = append(p, SharedPiece{Size: n})
	}
	return p
}

func TestSharedRangeClose(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	r := SharedRange{Pieces: []SharedPiece{{Size: 1}, {Size: 1, File: f}}}
	require.NoError(t, r.Close())
	require.ErrorIs(t, f.Close(), os.ErrClosed)
	require.NoError(t, r.Close())
}
