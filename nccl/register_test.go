package nccl_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/testkit/commtest"
	"github.com/cupool/cupool/nccl"
)

// TestRegister registers blocks, reduces in them and takes them back, by itself and
// by Close.
func TestRegister(t *testing.T) {
	for _, n := range groups(t) {
		ranks := newRanks(t, n, nccl.Config{})
		seed := uint64(n)
		require.NoError(t, each(ranks, func(r rank) error {
			in := commtest.Inputs[float32](seed, n, 1<<20)
			p, err := commtest.NewPlace(r.Member, in[r.Rank()])
			if err != nil {
				return err
			}
			block, err := r.Pool.Lookup(p.Ptr())
			if err := commtest.First(err, r.Register(block), r.Register(block), r.AllReduce(p.M, p.M, dist.Sum, r.Stream)); err != nil {
				return err
			}
			if err := commtest.First(r.Stream.Sync(), r.Deregister(block)); err != nil {
				return err
			}
			if err := r.Deregister(block); !errors.Is(err, cupool.ErrForeignPointer) {
				return errors.Join(errors.New("deregistered twice"), err)
			}
			if err := p.Is(commtest.Reduced(in, dist.Sum)); err != nil {
				return err
			}
			if err := r.Register(block); !errors.Is(err, cupool.ErrForeignPointer) && !errors.Is(err, cupool.ErrUseAfterFree) {
				return errors.Join(errors.New("a freed block is registered"), err)
			}
			last, err := r.Pool.Alloc(1<<20, nil)
			if err := commtest.First(err, r.Register(last), r.Close()); err != nil {
				return err
			}
			if err := r.Register(last); !errors.Is(err, cupool.ErrClosed) {
				return errors.Join(errors.New("registered after Close"), err)
			}
			return r.Pool.Free(last)
		}))
	}
}
