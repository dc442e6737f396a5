package lock

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The zero lock is a leaf.
func TestLeaf(t *testing.T) {
	require.Zero(t, Leaf)
	require.Len(t, names, int(Leaf-Closing)+1)
	require.Equal(t, "HeapTable", HeapTable.String())
	require.Equal(t, "Rank(1)", Rank(1).String())
}
