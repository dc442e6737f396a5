package dist

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
)

// A trainer is a rank with gradients.
type trainer struct {
	comm  Comm
	eng   *cupool.Engine
	grads []tensor.Tensor
	r     *Reducer
}

var gradientSizes = []int{10, 700, 3, 5000, 1, 64_000, 17, 256, 9}

func newTrainer(c Comm, pool *cupool.Pool, cfg ReducerConfig) (*trainer, error) {
	tr := &trainer{comm: c}
	s, err := pool.NewStream()
	if err != nil {
		return nil, err
	}
	if tr.eng, err = cupool.NewEngine(pool, cupool.WithStream(s)); err != nil {
		return nil, err
	}
	for _, n := range gradientSizes {
		g, err := tr.eng.Empty(tensor.Float32, n)
		if err != nil {
			return nil, err
		}
		tr.grads = append(tr.grads, g)
	}
	tr.r, err = NewReducer(c, tr.eng, tr.grads, cfg)
	return tr, err
}

// write gives gradient i values that depend on the rank and the step.
func (tr *trainer) write(i, step int) error {
	host := make([]byte, 4*gradientSizes[i])
	for j, f := 0, as[float32](host); j < len(f); j++ {
		f[j] = float32(step*10 + i + tr.comm.Rank()*4 + j%7)
	}
	return tr.eng.Stream().CopyIn(cupool.Ptr(tr.grads[i].Uintptr()), host)
}

// read returns gradient i in the order of the engine's stream.
func (tr *trainer) read(i int) ([]float32, error) {
	host := make([]byte, 4*gradientSizes[i])
	err := tr.eng.Stream().CopyOut(host, cupool.Ptr(tr.grads[i].Uintptr()))
	return as[float32](host), err
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
	for _, cfg := range []ReducerConfig{{}, {BucketBytes: 1}, {BucketBytes: 4000, FirstBytes: 100}} {
		everyWay(t, []int{1, 2, 3}, func(t *testing.T, comms []Comm, pools []*cupool.Pool) {
			n := len(comms)
			noErrors(t, parallel(n, func(rank int) error {
				tr, err := newTrainer(comms[rank], pools[rank], cfg)
				if err != nil {
					return err
				}
				for step := range 4 {
					if err := tr.step(step, n); err != nil {
						return err
					}
				}
				return tr.close()
			}))
		})
	}
}

func TestReducerRefuses(t *testing.T) {
	pool := newPool(t)
	comms, err := Local(pool)
	require.NoError(t, err)
	tr, err := newTrainer(comms[0], pool, ReducerConfig{})
	require.NoError(t, err)
	require.ErrorIs(t, tr.r.Ready(-1), cupool.ErrInvalidRange)
	require.ErrorIs(t, tr.r.Ready(len(gradientSizes)), cupool.ErrInvalidRange)
	require.NoError(t, tr.r.Ready(0))
	require.ErrorIs(t, tr.r.Ready(0), cupool.ErrInvalidRange)
	require.NoError(t, tr.r.Finish())
	require.NoError(t, tr.r.Ready(0))

	other, err := newPool(t).NewStream()
	require.NoError(t, err)
	_, err = NewReducer(comms[0], tr.eng, tr.grads, ReducerConfig{Stream: other})
	require.ErrorIs(t, err, cupool.ErrForeignStream)
	_, err = NewReducer(comms[0], tr.eng, []tensor.Tensor{tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2))}, ReducerConfig{})
	require.ErrorIs(t, err, cupool.ErrForeignPointer)
	_, err = NewReducer(comms[0], tr.eng, nil, ReducerConfig{BucketBytes: -1})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, err = NewReducer(nil, tr.eng, nil, ReducerConfig{})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)
	_, err = NewReducer(comms[0], nil, nil, ReducerConfig{})
	require.ErrorIs(t, err, cupool.ErrInvalidConfig)

	require.NoError(t, comms[0].Abort())
	require.NoError(t, tr.r.Ready(1)) // the bucket is not complete
	require.ErrorIs(t, tr.r.Finish(), cupool.ErrClosed)
	require.NoError(t, tr.close())
	require.ErrorIs(t, tr.r.Close(), cupool.ErrClosed)
	require.ErrorIs(t, tr.r.Ready(0), cupool.ErrClosed)
	require.ErrorIs(t, tr.r.Finish(), cupool.ErrClosed)
}

// step is a step of training of one of n ranks.
func (tr *trainer) step(step, n int) error {
	order := rand.New(rand.NewPCG(uint64(step), uint64(tr.comm.Rank()))).Perm(len(gradientSizes)) // another one on each rank
	unused := order[0] * (step % 2)                                                               // is not said to be ready
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
			if want := float64(step*10+i+j%7) + 2*float64(n-1); math.Abs(want-float64(v)) > 1e-4 {
				return fmt.Errorf("step %d, gradient %d, element %d: %v, not %v", step, i, j, v, want)
			}
		}
	}
	return nil
}
