package block

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

const (
	heapIndex = 6
	addr      = 512 << 20
	wanted    = 1000 // bytes
)

// out returns a block that went out in a generation.
func out(gen uint64) *Block {
	b := &Block{addr: addr, Size: 1024}
	b.SetOwner(heapIndex)
	b.SetRequested(wanted)
	b.SetWord(MakeWord(gen, Live))
	return b
}

// atHome returns a block that went out in a generation and came home then.
func atHome(gen uint64) *Block {
	b := out(gen)
	b.SetHome(Live, 7, Long)
	return b
}

// capi/hit.c has these offsets, the states and the flag in a word.
func TestHomeLayout(t *testing.T) {
	var b Block
	require.Zero(t, uintptr(unsafe.Pointer(&b.home))-uintptr(unsafe.Pointer(&b)))
	require.EqualValues(t, 64, unsafe.Sizeof(home{}))
	require.Equal(t, []uintptr{0, 8, 16, 24, 28}, []uintptr{
		unsafe.Offsetof(b.home.word), unsafe.Offsetof(b.home.addr), unsafe.Offsetof(b.home.requested),
		unsafe.Offsetof(b.home.owner), unsafe.Offsetof(b.home.last)})
	require.EqualValues(t, []int{1, 2, 8, 8}, []int{int(Live), int(Cached), int(Homed), genShift})
}

// take takes a block in its home, and reports whether it did, and the generation.
func take(b *Block) (ok bool, gen uint64) {
	w, ok := b.Cached(heapIndex, wanted)
	if ok {
		_, ok = b.TakeHomed(w)
	}
	return ok, w.Gen() + 1
}

func TestAtHome(t *testing.T) {
	for _, gen := range []uint64{0, 1, 1<<32 - 1, 1 << 32, 1<<56 - 3} {
		b := atHome(gen)
		require.Equal(t, MakeWord(gen, Live|Homed), b.Word())
		require.EqualValues(t, heapIndex, b.Owner())
		ok, _ := take(b)
		require.False(t, ok, "it is out")
		_, _, _, ok = b.LeaveHome(Live)
		require.True(t, ok)

		b = atHome(gen)
		at, size, g, ok := b.Homed()
		require.True(t, ok)
		require.EqualValues(t, []any{addr, wanted, gen}, []any{int(at), int(size), g})
		require.False(t, b.FreeHomed(gen+1), "another generation")
		require.True(t, b.FreeHomed(gen))
		require.Equal(t, MakeWord(gen, Cached|Homed), b.Word())
		require.False(t, b.FreeHomed(gen), "again")
		_, _, _, ok = b.Homed()
		require.False(t, ok, "it is not live")

		_, ok = b.Cached(heapIndex+1, wanted)
		require.False(t, ok, "another heap")
		_, ok = b.Cached(heapIndex, wanted+1)
		require.False(t, ok, "another size")
		w, ok := b.Cached(heapIndex, wanted)
		require.True(t, ok)
		require.Equal(t, gen, w.Gen())
		at, ok = b.TakeHomed(w)
		require.True(t, ok)
		require.EqualValues(t, addr, at)
		require.Equal(t, MakeWord(gen+1, Live|Homed), b.Word())
		require.Equal(t, gen, b.HomeGen())
		require.False(t, b.FreeHomed(gen), "the generation before")
	}
}

func TestLeaveHome(t *testing.T) {
	for name, c := range map[string]struct {
		cached bool // it was freed
		from   []State
		leaves bool
	}{
		"live of live":     {false, []State{Live}, true},
		"live of cached":   {false, []State{Cached}, false},
		"live of both":     {false, []State{Live, Cached}, true},
		"cached of live":   {true, []State{Live}, false},
		"cached of cached": {true, []State{Cached}, true},
		"cached of both":   {true, []State{Cached, Live}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := atHome(5)
			require.True(t, b.FreeHomed(5))
			_, gen := take(b)
			require.EqualValues(t, 6, gen)
			want := MakeWord(6, Live)
			if c.cached {
				require.True(t, b.FreeHomed(6))
				want = MakeWord(6, Cached)
			}
			slot, w, hits, ok := b.LeaveHome(c.from...)
			require.Equal(t, c.leaves, ok)
			if !c.leaves {
				require.True(t, b.Word().Has(Homed))
				return
			}
			require.EqualValues(t, 7, slot)
			require.EqualValues(t, 1, hits)
			require.Equal(t, want, w)
			require.Equal(t, want, b.Word())
			require.False(t, b.FreeHomed(6), "not at home")
			ok, _ = take(b)
			require.False(t, ok, "not at home")
			_, _, _, ok = b.LeaveHome(Live, Cached)
			require.False(t, ok, "again")
		})
	}
}

// A block that comes home as Cached is never live there in its generation.
func TestSetHomeCached(t *testing.T) {
	b := out(4)
	b.SetHome(Cached, 0, Long)
	require.False(t, b.FreeHomed(4), "by who freed it before")
	ok, gen := take(b)
	require.True(t, ok)
	require.EqualValues(t, 5, gen)
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
		_, w, _, _ := b.LeaveHome(Live, Cached)
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
		b := out(gen)
		b.SetHome(Live, 0, Stay{Takes: 2, Note: 200})
		for range 2 {
			require.True(t, b.FreeHomed(gen))
			require.False(t, b.TakeLast(wanted), "it may be taken")
			gen++
			w, _ := b.Cached(heapIndex, wanted)
			require.False(t, b.Ends(w))
			ok, g := take(b)
			require.True(t, ok)
			require.Equal(t, gen, g)
		}
		require.True(t, b.FreeHomed(gen))
		w, ok := b.Cached(heapIndex, wanted)
		require.True(t, ok)
		require.True(t, b.Ends(w))
		require.False(t, b.TakeLast(wanted+1))
		require.EqualValues(t, 200, b.StayNote())
		require.Equal(t, gen-2, b.HomeGen())
		require.True(t, b.TakeLast(wanted))
		_, w, hits, ok := b.LeaveHome(Live)
		require.True(t, ok)
		require.Equal(t, MakeWord(gen+1, Live), w)
		require.EqualValues(t, 3, hits)
	}
}
