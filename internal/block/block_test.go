package block

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Two cache lines: one that changes without a lock, and one that does not.
func TestBlockSize(t *testing.T) {
	require.EqualValues(t, 128, blockBytes)
	require.EqualValues(t, 64, unsafe.Offsetof(Block{}.word))
}

func TestWord(t *testing.T) {
	for _, gen := range []uint64{0, 1, 1 << 32, 1<<56 - 1} {
		for _, s := range []State{Free, Live, Cached, Pending} {
			for _, flags := range []State{0, Homed, Used, Homed | Used} {
				w := MakeWord(gen, s|flags)
				require.Equal(t, gen, w.Gen())
				require.Equal(t, s, w.State())
				require.Equal(t, flags&Homed != 0, w.Has(Homed))
				require.Equal(t, flags&Used != 0, w.Has(Used))
			}
		}
	}
}

func TestStrings(t *testing.T) {
	b := &Block{Size: 2 << 20}
	b.SetWord(MakeWord(9, Live|Used))
	require.Equal(t, "Live 2M", b.String())
	require.Equal(t, "Pending", Pending.String())
	require.Equal(t, "State(7)", State(7).String())

}
