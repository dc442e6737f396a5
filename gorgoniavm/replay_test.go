package gorgoniavm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/gorgoniavm"
)

// Where there are no graphs, a VM with Replay runs as one without.
func TestReplayWithoutGraphs(t *testing.T) {
	for name, newEngine := range engines {
		t.Run(name, func(t *testing.T) {
			m := models["mlp"]()
			e, _ := newEngine(t)
			want := m.train(t, e, open(t, m, e), 3)
			vm := open(t, m, e, gorgoniavm.Replay())
			require.Equal(t, want, m.train(t, e, vm, 3))
			stats := vm.Replays()
			require.ErrorIs(t, stats.Err, cupool.ErrNotSupported)
			require.Zero(t, stats.Recordings+stats.Launches)
		})
	}
}
