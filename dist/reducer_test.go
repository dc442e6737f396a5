package dist_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/testkit/commtest"
)

// A trainer is a rank with gradients.
type trainer struct {
	commtest.Member
	eng   *cupool.Engine
	grads []tensor.Tensor
	r     *dist.Reducer
}

var gradientSizes = []int{10, 700, 3, 5000, 1, 64_000, 17, 256, 9}

func newTrainer(r commtest.Member, cfg dist.ReducerConfig) (tr *trainer, err error) {
	tr = &trainer{Member: r}
	if tr.eng, err = cupool.NewEngine(r.Pool, cupool.WithStream(r.Stream)); err != nil {
		return nil, err
	}
	for _, n := range gradientSizes {
		g, err := tr.eng.Empty(tensor.Float32, n)
		if err != nil {
			return nil, err
		}
		tr.grads = append(tr.grads, g)
	}
	tr.r, err = dist.NewReducer(r.Comm, tr.eng, tr.grads, cfg)
	return tr, err
}

// host returns memory for gradient i, as elements and as bytes.
func host(i int) ([]float32, []byte) {
	f := make([]float32, gradientSizes[i])
	return f, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(f))), 4*len(f))
}

// write gives gradient i values that depend on the rank and the step.
func (tr *trainer) write(i, step int) error {
	f, b := host(i)
	for j := range f {
		f[j] = float32(step*10 + i + tr.Rank()*4 + j%7)
	}
	return tr.Stream.CopyIn(cupool.Ptr(tr.grads[i].Uintptr()), b)
}

// read returns gradient i in the order of the engine's stream.
func (tr *trainer) read(i int) ([]float32, error) {
	f, b := host(i)
	return f, tr.Stream.CopyOut(b, cupool.Ptr(tr.grads[i].Uintptr()))
}

func (tr *trainer) close() error {
	if err := tr.r.Close(); err != nil {
		return err
	}
	for _, g := range tr.grads {
		if err := tr.eng.FreeTensor(g); err != nil {
			return err
		}
	}
	return nil
}

func TestReducerMakesMeans(t *testing.T) {
	for _, cfg := range []dist.ReducerConfig{{}, {BucketBytes: 1}, {BucketBytes: 4000, FirstBytes: 100}} {
		everyWay(t, []int{1, 2, 3}, func(t *testing.T, ranks []commtest.Member) {
			require.NoError(t, commtest.Each(ranks, func(r commtest.Member) error {
				tr, err := newTrainer(r, cfg)
				for step := range 4 {
					if err == nil {
						err = tr.step(step)
					}
				}
				return errors.Join(err, tr.close())
			}))
		})
	}
}

// bucketed is a Comm that notes which gradients are reduced at once.
type bucketed struct {
	dist.Comm
	counts [][]int
}

func (b *bucketed) Group(f func() error) error {
	b.counts = append(b.counts, nil)
	return b.Comm.Group(f)
}

func (b *bucketed) AllReduce(dst, src dist.Memory, op dist.Op, s *cupool.Stream) error {
	last := &b.counts[len(b.counts)-1]
	*last = append(*last, dst.Count)
	return b.Comm.AllReduce(dst, src, op, s)
}

// A bucket is full with the gradient that gives it its size, the first one earlier.
func TestReducerBuckets(t *testing.T) {
	for cfg, want := range map[dist.ReducerConfig][][]int{
		{}:                                  {{10, 700, 3, 5000, 1, 64_000, 17, 256, 9}},
		{BucketBytes: 1}:                    {{10}, {700}, {3}, {5000}, {1}, {64_000}, {17}, {256}, {9}},
		{BucketBytes: 4000, FirstBytes: 41}: {{10, 700}, {3, 5000}, {1, 64_000}, {17, 256, 9}},
		{FirstBytes: 40}:                    {{10}, {700, 3, 5000, 1, 64_000, 17, 256, 9}},
		{BucketBytes: 2841}:                 {{10, 700, 3}, {5000}, {1, 64_000}, {17, 256, 9}},
	} {
		r := group(t, 1, newPool)[0]
		b := &bucketed{Comm: r.Comm}
		r.Comm = b
		tr, err := newTrainer(r, cfg)
		require.NoError(t, err)
		for range 2 {
			b.counts = nil
			require.NoError(t, tr.r.Finish())
			require.Equal(t, want, b.counts)
		}
		require.NoError(t, tr.close())
		require.NoError(t, r.Close())
	}
}

func TestReducerRefuses(t *testing.T) {
	r := group(t, 1, newPool)[0]
	tr, err := newTrainer(r, dist.ReducerConfig{})
	require.NoError(t, err)
	require.ErrorIs(t, tr.r.Ready(-1), cupool.ErrInvalidRange)
	require.ErrorIs(t, tr.r.Ready(len(gradientSizes)), cupool.ErrInvalidRange)
	require.NoError(t, tr.r.Ready(0))
	require.ErrorIs(t, tr.r.Ready(0), cupool.ErrInvalidRange)
	require.NoError(t, tr.r.Finish())
	require.NoError(t, tr.r.Ready(0))

	other, err := newPool(t).NewStream()
	require.NoError(t, err)
	_, err = dist.NewReducer(r.Comm, tr.eng, tr.grads, dist.ReducerConfig{Stream: other})
	require.ErrorIs(t, err, cupool.ErrForeignStream)
	_, err = dist.NewReducer(r.Comm, tr.eng, []tensor.Tensor{tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2))}, dist.ReducerConfig{})
	require.ErrorIs(t, err, cupool.ErrForeignPointer)
	_, err = dist.NewReducer(r.Comm, tr.eng, nil, dist.ReducerConfig{BucketBytes: -1})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, err = dist.NewReducer(nil, tr.eng, nil, dist.ReducerConfig{})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, err = dist.NewReducer(r.Comm, nil, nil, dist.ReducerConfig{})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)

	require.NoError(t, r.Abort())
	require.NoError(t, tr.r.Ready(1)) // the bucket is not complete
	require.ErrorIs(t, tr.r.Finish(), cupool.ErrClosed)
	require.NoError(t, tr.close())
	require.EqualError(t, tr.r.Close(), "dist: reducer: "+cupool.ErrClosed.Error())
	require.ErrorIs(t, tr.r.Ready(0), cupool.ErrClosed)
	require.ErrorIs(t, tr.r.Finish(), cupool.ErrClosed)
}

// step is a step of training.
func (tr *trainer) step(step int) error {
	order := rand.New(rand.NewPCG(uint64(step), uint64(tr.Rank()))).Perm(len(gradientSizes)) // another one on each rank
	unused := order[0] * (step % 2)                                                          // is not said to be ready
	for _, i := range order {
		if err := tr.write(i, step); err != nil {
			return err
		}
		if i == unused && step%2 == 1 {
			continue
		}
		if err := tr.r.Ready(i); err != nil {
			return err
		}
	}
	if err := tr.r.Finish(); err != nil {
		return err
	}
	for i := range gradientSizes {
		got, err := tr.read(i)
		if err != nil {
			return err
		}
		for j, v := range got {
			if want := float64(step*10+i+j%7) + 2*float64(tr.Size()-1); math.Abs(want-float64(v)) > 1e-4 {
				return fmt.Errorf("step %d, gradient %d, element %d: %v, not %v", step, i, j, v, want)
			}
		}
	}
	return nil
}

// What goes over the host cannot be part of a graph, and says so.
func TestCaptureOverTheHostIsRefused(t *testing.T) {
	r := group(t, 2, newCUDAPool)[0]
	tr, err := newTrainer(r, dist.ReducerConfig{})
	require.NoError(t, err)
	m, err := dist.OfTensor(tr.grads[0])
	require.NoError(t, err)
	_, err = tr.eng.Capture(func() error { return r.AllReduce(m, m, dist.Sum, tr.eng.Stream()) })
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	_, err = tr.eng.Capture(func() error {
		for i := range gradientSizes {
			if err := tr.r.Ready(i); err != nil {
				return err
			}
		}
		return nil
	})
	require.ErrorIs(t, err, cupool.ErrNotSupported)
	require.ErrorContains(t, err, "dist: reducer of rank 0 over the host")
	require.NoError(t, r.Err())
	require.NoError(t, tr.close())
}

// The only rank's gradients are what they are, in a graph, too.
func TestCaptureAlone(t *testing.T) {
	r := group(t, 1, newCUDAPool)[0]
	tr, err := newTrainer(r, dist.ReducerConfig{})
	require.NoError(t, err)
	g, err := tr.eng.Capture(func() error { return tr.r.Finish() })
	require.NoError(t, err)
	require.NoError(t, g.Close())
	require.NoError(t, tr.close())
}

// A Reducer gives back the stream that it has made, and no other.
func TestReducerStreams(t *testing.T) {
	var failing string
	failed := errors.New("no luck")
	r := group(t, 1, func(t testing.TB) *cupool.Pool {
		return poolOver(t, func(d cupool.Driver) cupool.Driver {
			return &hook.Driver{Driver: d, Around: func(c *hook.Call, do func() error) error {
				if c.Name == failing {
					return failed
				}
				return do()
			}}
		})
	})[0]
	before := r.Pool.Stats().Streams
	tr, err := newTrainer(r, dist.ReducerConfig{})
	require.NoError(t, err)
	require.Equal(t, before+1, r.Pool.Stats().Streams)
	failing = "SyncStream"
	require.ErrorIs(t, tr.close(), failed)
	failing = ""
	require.NoError(t, tr.r.Finish(), "it is open")
	require.NoError(t, tr.close())
	require.Equal(t, before, r.Pool.Stats().Streams)
	for _, failing = range []string{"NewStream", "NewEvent"} {
		_, err := dist.NewReducer(r.Comm, tr.eng, nil, dist.ReducerConfig{})
		require.ErrorIs(t, err, failed)
		require.Equal(t, before, r.Pool.Stats().Streams, failing)
	}
	failing = "NewEvent"
	_, err = dist.NewReducer(r.Comm, tr.eng, nil, dist.ReducerConfig{Stream: r.Stream})
	require.ErrorIs(t, err, failed)
	failing = ""
	tr, err = newTrainer(r, dist.ReducerConfig{Stream: r.Stream, BucketBytes: 1})
	require.NoError(t, err)
	require.Equal(t, before, r.Pool.Stats().Streams)
	failing = "RecordEvent"
	require.ErrorContains(t, tr.r.Ready(0), "dist: rank 0: ordering two streams: ")
	failing = ""
	require.ErrorIs(t, tr.r.Ready(1), failed, "the error of the step")
	require.ErrorIs(t, tr.r.Finish(), failed)
	require.NoError(t, tr.r.Finish(), "another step")
	require.NoError(t, tr.close())
	require.NoError(t, r.Stream.Sync())
}

// Where no Reducer was made, that is an error.
func TestNoReducer(t *testing.T) {
	for _, r := range []*dist.Reducer{nil, new(dist.Reducer)} {
		for _, err := range []error{r.Ready(0), r.Finish(), r.Close()} {
			require.ErrorIs(t, err, cupool.ErrInvalidHandle)
		}
	}
}
