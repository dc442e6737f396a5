package faults_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/handletest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestHandlesOfNothing: no method panics whose receiver is nil or zero. One that returns an
// error fails, and the others answer with nothing.
func TestHandlesOfNothing(t *testing.T) {
	handletest.Receivers(t, handletest.Handles()...)
}

// TestArgumentsOfNothing: no method panics that is given nil or zero handles, functions and
// contexts.
func TestArgumentsOfNothing(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: pooltest.OpenHost(t), Backing: cupool.BackingVMM})
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	for _, make := range []func() any{
		func() any { return pooltest.NewPrivate(t, c, cupool.PoolConfig{}) },
		func() any { return pooltest.NewStream(t, c) },
		func() any { return testkit.Must(c.DefaultStream().Record()) },
		func() any { return testkit.Must(cupool.NewBuffer[float32](c, 10, nil)) },
		func() any { return e.Scope() },
	} {
		handletest.Arguments(t, make)
	}
	var ctx context.Context // nil
	_, err = c.AllocContext(ctx, 100, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidHandle)
	require.ErrorIs(t, c.DefaultStream().SyncContext(ctx), cupool.ErrInvalidHandle)
}

// TestOverNoPool: what is made over a pool fails over none.
func TestOverNoPool(t *testing.T) {
	for _, a := range []cupool.Allocator{nil, (*cupool.Pool)(nil), new(cupool.Pool), new(cupool.Pool).WithLabel("x")} {
		_, err := cupool.NewEngine(a)
		require.Error(t, err)
		_, err = cupool.NewBuffer[int32](a, 10, nil)
		require.Error(t, err)
		_, err = cupool.BufferFrom(a, []int32{1}, nil)
		require.Error(t, err)
	}
}
