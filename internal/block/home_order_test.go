//go:build invariants

package block

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A goroutine on one processor that is stopped between the loads of a block's
// word and of its home, while the block goes out at its home and a stream is
// recorded on it, does not take the block, whichever the stream is.
func TestTakeHomedBetweenLoads(t *testing.T) {
	const elsewhere = home + 2
	for i := range uint32(64) {
		uses := i / 2 // a stream's index + 1
		if i%2 == 1 {
			uses |= 1 << 31 // or the index of a set of streams
		}
		b := atHome(5)
		require.True(t, b.FreeHomed(5))
		Hook = func(at Step) {
			Hook = nil
			require.Equal(t, Taking, at)
			require.EqualValues(t, 6, b.TakeHomed(home))
			_, _, ok := b.LeaveHome(false)
			require.True(t, ok)
			b.MarkUsed()
			b.SetUses(uses)
		}
		require.Zero(t, b.TakeHomed(elsewhere), "taken a second time, with uses %#x", uses)
		require.Equal(t, MakeWord(6, Live|Used), b.Word())
		require.Equal(t, uses, b.Uses())
	}
}
