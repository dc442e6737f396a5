//go:build invariants

package magazine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/block"
)

// Whose block another goroutine takes between the look and the swap moves to another shard.
// Whose block leaves its home meanwhile stays.
func TestLost(t *testing.T) {
	for name, c := range map[string]struct {
		meanwhile func(p *pen, id block.ID)
		moves     bool
	}{
		"taken":   {func(p *pen, id block.ID) { require.Equal(t, id, p.get(1000)) }, true},
		"flushed": {func(p *pen, _ block.ID) { p.Flush(true, func(Leaver) {}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPen()
			id, b, _ := p.put(t, 1000)
			require.True(t, b.FreeHomed(0))
			before := p.mine()
			block.Hook = func(at block.Step) {
				if at == block.Taking {
					block.Hook = nil
					c.meanwhile(p, id)
				}
			}
			got, _, _, why := p.Get(1000)
			require.Nil(t, block.Hook)
			require.Zero(t, got)
			p.Missed(1000, why)
			require.Equal(t, c.moves, before != p.mine())
		})
	}
}
