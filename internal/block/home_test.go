package block

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const home = 3

// atHome returns a block that went out in a generation and came home then.
func atHome(gen uint64) *Block {
	b := new(Block)
	b.SetWord(MakeWord(gen, Live))
	b.SetHome(home, Long)
	return b
}

func TestAtHome(t *testing.T) {
	for _, gen := range []uint64{0, 1, 1<<32 - 1, 1 << 32, 1<<56 - 3} {
		b := atHome(gen)
		require.Equal(t, home, b.Home())
		require.Equal(t, MakeWord(gen, Live|Homed), b.Word())
		require.Zero(t, b.TakeHomed(home), "it is out")
		_, _, ok := b.LeaveHome(false)
		require.True(t, ok)

		b = atHome(gen)
		require.False(t, b.FreeHomed(gen+1), "another generation")
		require.True(t, b.FreeHomed(gen))
		require.Equal(t, MakeWord(gen, Cached|Homed), b.Word())
		require.False(t, b.FreeHomed(gen), "again")

		require.Zero(t, b.TakeHomed(home+1), "another home")
		require.Equal(t, gen+1, b.TakeHomed(home))
		require.Equal(t, MakeWord(gen+1, Live|Homed), b.Word())
		require.False(t, b.FreeHomed(gen), "the generation before")
	}
}

func TestLeaveHome(t *testing.T) {
	b := atHome(5)
	require.True(t, b.FreeHomed(5))
	require.EqualValues(t, 6, b.TakeHomed(home))
	w, hits, ok := b.LeaveHome(false)
	require.True(t, ok)
	require.Equal(t, MakeWord(6, Live), w)
	require.Equal(t, w, b.Word())
	require.EqualValues(t, 1, hits)
	require.Negative(t, b.Home())
	require.False(t, b.FreeHomed(6), "not at home")
	_, _, ok = b.LeaveHome(true)
	require.False(t, ok, "again")

	b = atHome(7)
	require.True(t, b.FreeHomed(7))
	w, _, ok = b.LeaveHome(false)
	require.False(t, ok, "it is cached")
	require.Equal(t, MakeWord(7, Cached|Homed), w)
	w, hits, ok = b.LeaveHome(true)
	require.True(t, ok)
	require.Equal(t, MakeWord(7, Cached), w)
	require.Zero(t, hits)
	require.Zero(t, b.TakeHomed(home), "not at home")
}

// A block is freed once, however many try, and whoever makes it leave its home
// meanwhile sees either.
func TestFreeAtOnce(t *testing.T) {
	for gen := range uint64(2_000) {
		b := atHome(gen)
		freed := make(chan bool)
		for range 3 {
			go func() { freed <- b.FreeHomed(gen) }()
		}
		w, _, _ := b.LeaveHome(true)
		n := 0
		for range 3 {
			if <-freed {
				n++
			}
		}
		require.Equal(t, w, b.Word())
		require.Equal(t, w.State() == Cached, n == 1)
		require.Equal(t, w.State() == Live, n == 0)
	}
}

// A block is taken as often as its Stay says, and then once more by TakeLast.
func TestStay(t *testing.T) {
	for _, gen := range []uint64{0, 1<<32 - 2, 1<<56 - 9} {
		b := new(Block)
		b.SetWord(MakeWord(gen, Live))
		b.SetHome(home, Stay{Takes: 2, Note: 200})
		require.Zero(t, b.Origin(), "it has none")
		for range 2 {
			require.True(t, b.FreeHomed(gen))
			require.Zero(t, b.TakeLast(home), "it may be taken")
			gen++
			require.Equal(t, gen, b.TakeHomed(home))
		}
		require.True(t, b.FreeHomed(gen))
		require.Zero(t, b.TakeHomed(home))
		require.Zero(t, b.TakeLast(home+1))
		b.link = homeLink(gen-1, b.StayNote())
		require.EqualValues(t, 200, b.StayNote())
		require.Equal(t, gen-1, b.HomeGen())
		require.Equal(t, gen+1, b.TakeLast(home))
		_, hits, ok := b.LeaveHome(false)
		require.True(t, ok)
		require.EqualValues(t, 2, hits)
		require.Zero(t, b.Origin())
	}
}
