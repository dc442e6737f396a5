package sanitize

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/block"
	"github.com/cupool/cupool/internal/hostdev"
	"github.com/cupool/cupool/internal/origins"
)

// A free that is under way while the pool is closed may be checked after that. It makes
// no stream then, which nobody would destroy.
func TestClosedMakesNoStream(t *testing.T) {
	d, err := hostdev.Open(hostdev.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	p := &Pool{
		Settings: Settings{Canaries: 64}, Device: d, Name: "a pool", Stacks: &origins.Table{},
		Tell: func(e *device.CorruptionError) { t.Error(e) }, Failed: func(err error) error { return err },
	}
	slots := block.SlotCache{Table: &block.Table{}}
	require.NoError(t, slots.Ensure(1))
	id, b := slots.Take()
	b.Size = 512
	p.CheckEnd(id, b, 0)
	require.Equal(t, 1, d.Stats().Streams)
	require.NoError(t, p.Close())
	p.CheckEnd(id, b, 0)
	_, err = p.stream()
	require.ErrorIs(t, err, device.ErrClosed)
	require.Zero(t, d.Stats().Streams)
	require.NoError(t, p.Close())
}
