package snapshot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

func TestLayout(t *testing.T) {
	for _, x := range []struct {
		block snapshot.Block
		want  string
	}{
		{snapshot.Block{Size: 2 << 20, State: snapshot.Live}, "[Live 2M]"},
		{snapshot.Block{Size: 2 << 20, State: snapshot.Live, Label: "weights"}, "[Live 2M weights]"},
		{snapshot.Block{Size: 2 << 20}, "[? 2M]"},
	} {
		s := snapshot.Snapshot{Segments: []snapshot.Segment{{Number: 3, Type: "large", Blocks: []snapshot.Block{x.block}}}}
		require.Equal(t, "3 large: "+x.want+"\n", s.Layout())
	}
}
