package snapshot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/snapshot"
)

func TestHolders(t *testing.T) {
	require.Equal(t, []snapshot.Holder{
		{Blocks: 1, Live: 2 << 20, Pending: 3 << 20, Cached: 4 << 20},
		{Label: "weights", Blocks: 3, Live: 3 << 20},
		{Pool: "activations", Stream: 3, Blocks: 2, Live: 1024, Cached: 1024},
	}, snapshot.HoldersOf(taken...))
	require.Empty(t, snapshot.HoldersOf())
}
