package addrmap

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// The units that the allocator uses: 512 bytes for small blocks, where the
// map reaches to the border of a five-level page table, and 1 MiB.
var units = []uint{9, 20}

func forUnits(t *testing.T, f func(t *testing.T, unit uint64, m *Map)) {
	for _, bits := range units {
		t.Run(fmt.Sprintf("unit=%d", 1<<bits), func(t *testing.T) { f(t, 1<<bits, New(bits)) })
	}
}

func TestSetAndGet(t *testing.T) {
	forUnits(t, func(t *testing.T, unit uint64, m *Map) {
		for i, addr := range []uint64{
			0, unit, fanout * unit, (fanout - 1) * unit, 1 << 33 * unit >> 9, 1 << 47, 1<<57 - 2*unit,
			0x7f12_3400_0000,
			1<<57 - unit, // the last one of a five-level page table
		} {
			require.Zero(t, m.Get(addr), "0x%x", addr)
			require.True(t, m.Set(addr, uint32(i+1)), "0x%x", addr)
			require.EqualValues(t, i+1, m.Get(addr), "0x%x", addr)
			require.True(t, m.Set(addr, 1<<32-1), "overwrite")
			require.EqualValues(t, uint32(1<<32-1), m.Get(addr))
			require.EqualValues(t, uint32(1<<32-1), m.Get(addr+unit-1), "one value a unit")
			if addr > 0 {
				require.Zero(t, m.Get(addr-1-unit), "0x%x", addr)
			}
		}
	})
}

func TestBeyondTheBorder(t *testing.T) {
	m := New(9)
	require.True(t, m.Set(0, 7))
	for _, addr := range []uint64{1 << 57, 1<<57 + 512, 1 << 63, 1<<64 - 512} {
		require.False(t, m.Set(addr, 1), "0x%x", addr)
		require.Zero(t, m.Get(addr), "0x%x", addr)
	}
	require.EqualValues(t, 7, m.Get(0), "nothing wrapped around")

	m = New(20) // 68 bits: every address fits
	require.True(t, m.Set(1<<64-512, 1))
	require.EqualValues(t, 1, m.Get(1<<64-512))
	require.Zero(t, m.Get(0))
}

func TestAgainstMap(t *testing.T) {
	forUnits(t, func(t *testing.T, unit uint64, m *Map) {
		ref := map[uint64]uint32{}
		r := rand.New(rand.NewPCG(1, 2))
		bases := []uint64{0, 0x7f00_0000_0000, 1<<57 - unit<<15}
		for range 20_000 {
			addr := bases[r.IntN(len(bases))] + r.Uint64N(1<<15)*unit
			if r.IntN(2) == 0 {
				v := r.Uint32()
				require.True(t, m.Set(addr, v))
				ref[addr] = v
			}
			require.Equal(t, ref[addr], m.Get(addr+r.Uint64N(unit)))
		}
		for addr, v := range ref {
			require.Equal(t, v, m.Get(addr))
		}
	})
}

func TestBytes(t *testing.T) {
	m := New(9)
	require.Zero(t, m.Bytes())
	m.Set(0, 1)
	first := m.Bytes()
	require.EqualValues(t, fanout*(8+8+4), first)
	m.Set(512, 1)
	require.Equal(t, first, m.Bytes(), "the same leaf")
	m.Set(2<<20, 1)
	require.Equal(t, first+fanout*4, m.Bytes(), "one leaf more")
}

// Forget takes out what lies wholly in a range, leaf by leaf, and nothing else.
func TestForget(t *testing.T) {
	const leafBytes = fanout << 9
	m := New(9)
	base := uint64(1<<40 + leafBytes/2)
	for a := base - leafBytes; a < base+5*leafBytes; a += leafBytes / 4 {
		m.Set(a, 7)
	}
	before := m.Bytes()
	m.Forget(base, 4*leafBytes) // three whole leaves, and a half on either side
	require.Equal(t, before-3*fanout*4, m.Bytes())
	for a := base - leafBytes; a < base+5*leafBytes; a += leafBytes / 4 {
		want := uint32(7)
		if a >= base+leafBytes/2 && a < base+leafBytes/2+3*leafBytes {
			want = 0
		}
		require.Equal(t, want, m.Get(a), a)
	}
	m.Forget(base, 4*leafBytes)
	m.Forget(1<<45, 1<<30)
	m.Forget(0, leafBytes/2)
	require.Equal(t, before-3*fanout*4, m.Bytes())
	m.Set(base+leafBytes, 8)
	require.EqualValues(t, 8, m.Get(base+leafBytes))
	require.Zero(t, m.Get(base+leafBytes+512))
}

// Readers take no lock while writers add leaves.
func TestConcurrentReaders(t *testing.T) {
	m := New(9)
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for w := range uint64(2) {
		writers.Go(func() {
			base := w << 40 // each writer has its own memory, as each segment has
			for round := range uint32(30) {
				for i := range uint64(1000) {
					m.Set(base+i*4096, round+1)
				}
			}
		})
		readers.Go(func() {
			for i := uint64(0); ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if v := m.Get(w<<40 + i%1000*4096); v > 30 {
					t.Errorf("value %d was never set", v)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}
