//go:build !gpu

package nccl_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nccl"
)

// TestWithoutCUDA tells how to build a program with NCCL.
func TestWithoutCUDA(t *testing.T) {
	_, err := nccl.Version("")
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "-tags gpu")
	pool, err := cupool.New(cupool.Config{})
	require.NoError(t, err)
	_, err = nccl.NewLocal(context.Background(), []*cupool.Pool{pool}, nccl.Config{})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.NoError(t, pool.Close())
}
