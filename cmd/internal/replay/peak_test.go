package replay

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/trace"
)

func TestAtPeak(t *testing.T) {
	tr, err := trace.Read(strings.NewReader("a 1 3000000 0\na 2 5000000 0\nf 1\na 3 1000 0\nf 2\nf 3\n"), "x")
	require.NoError(t, err)
	p, err := AtPeak(t.Context(), tr, Options{})
	require.NoError(t, err)
	var requested int64
	for _, seg := range p.Segments {
		requested += seg.Requested
	}
	require.EqualValues(t, 8000000, requested)

	p, err = AtPeak(t.Context(), &trace.Trace{Streams: []int64{0}}, Options{})
	require.NoError(t, err)
	require.Empty(t, p.Segments)
}
