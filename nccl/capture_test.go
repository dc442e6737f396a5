package nccl_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit/commtest"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/nccl"
)

// TestCapture captures a computation with sums of several ranks in it, on a fork
// too, and launches it on changing data.
func TestCapture(t *testing.T) {
	for _, n := range groups(t) {
		ranks := newRanks(t, n, nccl.Config{})
		require.NoError(t, each(ranks, capture), "%d ranks", n)
	}
}

func capture(r rank) error {
	s, err := r.Pool.NewStream()
	if err != nil {
		return err
	}
	e, err := cupool.NewEngine(r.Pool, cupool.WithStream(s))
	if err != nil {
		return err
	}
	x := tensor.New(tensor.WithEngine(e), tensor.WithShape(1000), tensor.Of(tensor.Float32))
	from := tensor.New(tensor.WithEngine(e), tensor.WithShape(1000), tensor.Of(tensor.Float32))
	var y, z tensor.Tensor
	compute := func() (err error) {
		if y, err = tensor.Add(x, x); err != nil {
			return err
		}
		if err := sumOf(r, y, s); err != nil {
			return err
		}
		if z, err = tensor.Add(y, x); err != nil {
			return err
		}
		return commtest.First(sumOf(r, z, s), ring(r, from, x, s))
	}
	if err := commtest.First(e.Memset(x, float32(1)), compute(), e.FreeTensor(y, z), e.Sync()); err != nil {
		return err
	}
	g, err := e.Capture(compute)
	if err != nil {
		return err
	}
	for i := range 6 {
		if err := commtest.First(e.Memset(x, float32(i+r.Rank())), g.Launch()); err != nil {
			return err
		}
		got, err := e.ToHost(z)
		if err != nil {
			return err
		}
		n := r.Size()
		xs := n*i + n*(n-1)/2 // the sum of the ranks' x
		for _, v := range enginetest.FloatsOf(got) {
			if v != float64(2*xs*n+xs) {
				return fmt.Errorf("launch %d: %v, not %v", i, v, 2*xs*n+xs)
			}
		}
		if got, err = e.ToHost(from); err != nil {
			return err
		}
		for _, v := range enginetest.FloatsOf(got) {
			if before := (r.Rank() + n - 1) % n; v != float64(i+before) {
				return fmt.Errorf("launch %d: %v from rank %d", i, v, before)
			}
		}
	}
	return commtest.First(g.Close(), e.FreeTensor(x, from), r.Close(), s.Close())
}

// ring sends x to the next rank and receives into from.
func ring(r rank, from, x tensor.Tensor, s *cupool.Stream) error {
	dst, err1 := dist.OfTensor(from)
	src, err2 := dist.OfTensor(x)
	n := r.Size()
	return commtest.First(err1, err2, r.Group(func() error {
		return commtest.First(r.Send(src, (r.Rank()+1)%n, s), r.Recv(dst, (r.Rank()+n-1)%n, s))
	}))
}

func sumOf(r rank, x tensor.Tensor, s *cupool.Stream) error {
	m, err := dist.OfTensor(x)
	if err != nil {
		return err
	}
	return r.AllReduce(m, m, dist.Sum, s)
}

// TestWatchLeavesCaptures: the watch records nothing on a stream that is captured.
func TestWatchLeavesCaptures(t *testing.T) {
	onStandIn(t)
	r := newRanks(t, 1, nccl.Config{})[0]
	e, err := cupool.NewEngine(r.Pool, cupool.WithStream(r.Stream))
	require.NoError(t, err)
	p, err := commtest.NewPlace(r.Member, make([]float32, 100))
	require.NoError(t, err)
	sum := func() error { return r.AllReduce(p.M, p.M, dist.Sum, r.Stream) }
	require.NoError(t, commtest.First(sum(), sum())) // the second leaves a mark to the watch
	g, err := e.Capture(func() error {
		fakecuda.Count(true)
		defer fakecuda.Count(false)
		time.Sleep(300 * time.Millisecond) // it looks meanwhile
		require.Zero(t, fakecuda.Calls("cuEventRecord"))
		return sum()
	})
	require.NoError(t, err)
	require.NoError(t, commtest.First(g.Close(), p.Free()))
}
