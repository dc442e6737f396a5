//go:build cgo

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFlagsBesideStats: flags may be added while others look at what the pool was made with. It takes -race to fail.
func TestFlagsBesideStats(t *testing.T) {
	g, _, _ := newGPU(t)
	id := poolID{1, 2}
	require.NoError(t, g.create(id, poolSettings{limit: 5 << 20}))
	added := make(chan error)
	go func() {
		p, err := g.find(id)
		for range 100 {
			g.mu.Lock()
			err = p.addFlags(0)
			g.mu.Unlock()
		}
		added <- err
	}()
	for range 100 {
		a, err := g.emptyAccount(id)
		require.NoError(t, err)
		require.EqualValues(t, 5<<20, a.limit)
	}
	require.NoError(t, <-added)
}
