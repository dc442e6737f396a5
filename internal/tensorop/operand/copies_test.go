package operand

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCopies(t *testing.T) {
	var c Copies[int]
	live := map[int]bool{1: true, 2: true}
	isLive := func(b int) bool { return live[b] }
	require.False(t, c.Awaited())
	c.Expect(1, isLive)
	require.True(t, c.Awaited())
	require.True(t, c.Misses(1))
	require.False(t, c.Misses(2))
	m := c.InHeap(9)
	require.EqualValues(t, 9, m.Size)
	require.Equal(t, make([]byte, 9), Bytes(m.Ptr, m.Size))
	require.True(t, c.Arrive(m.Ptr, 0))
	require.True(t, c.Awaited(), "block 1")
	require.False(t, c.Arrive(0x1000, 1))
	require.False(t, c.Awaited())
	require.False(t, c.Misses(1))

	c.Expect(1, isLive)
	live[1] = false
	c.Expect(2, isLive)
	require.False(t, c.Misses(1), "a block that was freed")
	require.Empty(t, FindCopier())
}
