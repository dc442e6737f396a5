//go:build gpu

package nccl_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/nccl"
)

// TestRegister registers blocks, reduces in them and takes them back, by itself and
// by Close.
func TestRegister(t *testing.T) {
	for _, n := range groups(t) {
		ranks := newRanks(t, n, nccl.Config{})
		seed := uint64(n)
		require.NoError(t, each(ranks, func(r rank) error {
			in := inputs[float32](seed, n, 1<<20)
			p, err := newPlace(r, nil, in[r.Rank()])
			if err != nil {
				return err
			}
			block, err := r.pool.Lookup(p.b.Ptr())
			if err := first(err, r.Register(block), r.Register(block), r.AllReduce(p.m, p.m, dist.Sum, nil)); err != nil {
				return err
			}
			if err := first(r.pool.DefaultStream().Sync(), r.Deregister(block)); err != nil {
				return err
			}
			if err := r.Deregister(block); !errors.Is(err, cupool.ErrForeignPointer) {
				return errors.Join(errors.New("deregistered twice"), err)
			}
			if err := first(p.is("sum in registered memory", reduced(in, dist.Sum))); err != nil {
				return err
			}
			if err := r.Register(block); !errors.Is(err, cupool.ErrForeignPointer) && !errors.Is(err, cupool.ErrUseAfterFree) {
				return errors.Join(errors.New("a freed block is registered"), err)
			}
			last, err := r.pool.Alloc(1<<20, nil)
			if err := first(err, r.Register(last), r.Close()); err != nil {
				return err
			}
			if err := r.Register(last); !errors.Is(err, cupool.ErrClosed) {
				return errors.Join(errors.New("registered after Close"), err)
			}
			return r.pool.Free(last)
		}))
	}
}
