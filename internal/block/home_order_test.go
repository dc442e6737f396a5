//go:build invariants

package block

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A goroutine that is stopped between its look at a cached block and the swap does not
// take it, whatever becomes of the block meanwhile.
func TestTakeHomedAfterALook(t *testing.T) {
	leave := func(b *Block) {
		_, _, _, ok := b.LeaveHome(Live, Cached)
		require.True(t, ok)
	}
	goOut := func(b *Block) { b.SetWord(MakeWord(b.Word().Gen()+1, Live)) }
	for name, c := range map[string]struct {
		meanwhile func(b *Block)
		took      bool
	}{
		"nothing": {func(*Block) {}, true},
		"another takes it": {func(b *Block) {
			_, gen := take(b)
			require.EqualValues(t, 6, gen)
		}, false},
		"and gives it back": {func(b *Block) {
			_, gen := take(b)
			require.True(t, b.FreeHomed(gen))
		}, false},
		"it is flushed": {leave, false},
		"flushed, and out": {func(b *Block) {
			leave(b)
			goOut(b)
			b.SetUses(4)
			b.MarkUsed()
		}, false},
		"at home for another size": {func(b *Block) {
			leave(b)
			goOut(b)
			b.SetRequested(wanted / 2)
			b.SetHome(Cached, 9, Long)
		}, false},
		"at home in another heap": {func(b *Block) {
			leave(b)
			goOut(b)
			b.SetOwner(heapIndex + 1)
			b.SetHome(Cached, 9, Long)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := atHome(5)
			require.True(t, b.FreeHomed(5))
			Hook = func(at Step) {
				require.Equal(t, Taking, at)
				Hook = nil
				c.meanwhile(b)
			}
			took, _ := take(b)
			require.Nil(t, Hook)
			require.Equal(t, c.took, took)
		})
	}
}
