package operand

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
)

// A slot has the same object for ever, and allocators do not share any.
func TestMemories(t *testing.T) {
	var ms Memories
	a := ms.Set(1, 5, 0x1000, 512)
	b := ms.Set(2, 5, 0x2000, 1024)
	far := ms.Set(1, 3*memoryChunk+7, 0x3000, 2048)
	require.Equal(t, Memory{0x1000, 512, 5, 1}, *a)
	require.Equal(t, Memory{0x2000, 1024, 5, 2}, *b)
	require.Equal(t, Memory{0x3000, 2048, 3*memoryChunk + 7, 1}, *far)
	require.Same(t, a, ms.Set(1, 5, 0x4000, 8))
	require.EqualValues(t, 0x4000, a.Uintptr())
	require.EqualValues(t, 8, a.MemSize())
	require.Contains(t, a.String(), "(8 bytes)")
	require.Zero(t, testing.AllocsPerRun(10, func() { ms.Set(2, 5, 0x2000, 1024) }))
	p, n := Extent(far)
	require.Equal(t, device.Ptr(0x3000), p)
	require.EqualValues(t, 2048, n)
	p, n = Extent(new(Memory))
	require.Zero(t, p)
	require.Zero(t, n)
}

func TestMemoriesFromSeveralGoroutines(t *testing.T) {
	var ms Memories
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for slot := range uint32(2 * memoryChunk) {
				if m := ms.Set(uint32(g%2), slot*4+uint32(g), device.Ptr(slot+1), 8); m.Ptr != device.Ptr(slot+1) {
					t.Errorf("slot %d: %v", slot, m)
				}
			}
		})
	}
	wg.Wait()
}
