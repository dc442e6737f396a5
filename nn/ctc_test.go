package nn_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

// ctcCase is a batch of sequences.
type ctcCase struct {
	frames, samples, classes int
	targets                  *tensor.Dense
	lengths, of              []int
}

func intsOf(shape []int, xs ...int) *tensor.Dense {
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(xs))
}

var ctcCases = map[string]ctcCase{
	"rows":             {5, 2, 3, intsOf([]int{2, 2}, 1, 2, 2, 2), []int{5, 5}, []int{2, 2}},
	"one after other":  {5, 2, 3, intsOf([]int{3}, 1, 2, 2), []int{5, 5}, []int{1, 2}},
	"shorter":          {5, 3, 3, intsOf([]int{3, 2}, 1, 2, 1, 0, 2, 1), []int{4, 1, 3}, []int{2, 1, 1}},
	"no targets":       {4, 2, 3, intsOf([]int{2, 1}, 1, 1), []int{4, 3}, []int{0, 1}},
	"a frame":          {1, 1, 2, intsOf([]int{1}, 1), []int{1}, []int{1}},
	"not enough of it": {2, 1, 3, intsOf([]int{1, 2}, 1, 1), []int{2}, []int{2}}, // a path needs a blank between
}

// lossOf sums up the probabilities of all paths, one by one.
func (c ctcCase) lossOf(lp []float64, b int) float64 {
	from, width := 0, 0
	if c.targets.Dims() == 2 {
		width = c.targets.Shape()[1]
		from = b * width
	} else {
		for i := range b {
			from += c.of[i]
		}
	}
	want := c.targets.Ints()[from : from+c.of[b]]
	paths := int(math.Pow(float64(c.classes), float64(c.lengths[b])))
	total := 0.0
	for n := range paths {
		var said []int
		last, logP := 0, 0.0
		for t := range c.lengths[b] {
			class := n % c.classes
			n /= c.classes
			logP += lp[(t*c.samples+b)*c.classes+class]
			if class != 0 && class != last {
				said = append(said, class)
			}
			last = class
		}
		if slices.Equal(said, want) {
			total += math.Exp(logP)
		}
	}
	return -math.Log(total)
}

// logSoftMax returns the logarithms of probabilities.
func logSoftMax(x []float64, classes int) []float64 {
	lp := make([]float64, len(x))
	for from := 0; from < len(x); from += classes {
		sum := 0.0
		for _, v := range x[from : from+classes] {
			sum += math.Exp(v)
		}
		for i := from; i < from+classes; i++ {
			lp[i] = x[i] - math.Log(sum)
		}
	}
	return lp
}

// loss is the sum of the samples' losses, or the mean by target.
func (c ctcCase) loss(x []float64, mean bool) (sum float64) {
	lp := logSoftMax(x, c.classes)
	for b := range c.samples {
		if mean {
			sum += c.lossOf(lp, b) / float64(max(c.of[b], 1)) / float64(c.samples)
		} else {
			sum += c.lossOf(lp, b)
		}
	}
	return sum
}

func TestCTCLoss(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		for name, c := range ctcCases {
			for _, dt := range floats {
				t.Run(name, func(t *testing.T) { e.checkCTC(t, c, dt) })
			}
		}
	})
}

// checkCTC compares the loss with that of all paths, and the gradient with
// differences.
func (e *bench) checkCTC(t *testing.T, c ctcCase, dt tensor.Dtype) {
	x := random(e.Rand, tensor.Float64, c.frames, c.samples, c.classes).Data().([]float64)
	lp := e.From(inType(dt, logSoftMax(x, c.classes), c.frames, c.samples, c.classes))
	tr := nn.Transcripts{Targets: e.From(c.targets), Lengths: e.From(intsOf([]int{c.samples}, c.lengths...)), TargetLengths: e.From(intsOf([]int{c.samples}, c.of...))}
	loss, dx := must(e.Empty(dt, 1)), must(e.Empty(dt, c.frames, c.samples, c.classes))
	for _, mean := range []bool{false, true} {
		require.NoError(t, nn.CTCLoss(e.Engine, lp, tr, loss, mean))
		e.RequireNear([]float64{c.loss(x, mean)}, loss, "loss")
	}
	require.NoError(t, nn.CTCLossBack(e.Engine, lp, tr, dx, -2))
	if !math.IsInf(c.loss(x, false), 0) {
		const h = 1e-6
		for i, got := range e.As64(dx) {
			at := x[i]
			x[i] = at + h
			above := c.loss(x, false)
			x[i] = at - h
			below := c.loss(x, false)
			x[i] = at
			require.InDelta(t, -2*(above-below)/(2*h), got, 1e-4, "element %d", i)
		}
	}
	e.FreeAll(lp, loss, dx, tr.Targets, tr.Lengths, tr.TargetLengths)
}

// inType returns numbers as a tensor of a type.
func inType(dt tensor.Dtype, xs []float64, shape ...int) *tensor.Dense {
	if dt == tensor.Float64 {
		return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(xs))
	}
	fs := make([]float32, len(xs))
	for i, x := range xs {
		fs[i] = float32(x)
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(fs))
}

// A sample whose lengths or classes are out of range is NaN, and the others are not.
func TestCTCLossOutOfRange(t *testing.T) {
	for what, c := range map[string]struct{ lengths, of, targets []int }{
		"too long":         {[]int{4, 3}, []int{1, 1}, []int{1, 1, 1, 1}},
		"too short":        {[]int{0, 3}, []int{1, 1}, []int{1, 1, 1, 1}},
		"too many targets": {[]int{3, 3}, []int{3, 1}, []int{1, 1, 1, 1}},
		"fewer than none":  {[]int{3, 3}, []int{-1, 1}, []int{1, 1, 1, 1}},
		"no such class":    {[]int{3, 3}, []int{1, 1}, []int{2, 1, 1, 1}},
		"a negative class": {[]int{3, 3}, []int{1, 1}, []int{-1, 1, 1, 1}},
	} {
		t.Run(what, func(t *testing.T) {
			both(t, func(t *testing.T, e *bench) {
				lp := e.From(random(e.Rand, tensor.Float64, 3, 2, 2))
				tr := nn.Transcripts{Targets: e.From(intsOf([]int{2, 2}, c.targets...)), Lengths: e.From(intsOf([]int{2}, c.lengths...)), TargetLengths: e.From(intsOf([]int{2}, c.of...))}
				loss, dx := must(e.Empty(tensor.Float64, 1)), must(e.Empty(tensor.Float64, 3, 2, 2))
				require.NoError(t, nn.CTCLoss(e.Engine, lp, tr, loss, false))
				require.True(t, math.IsNaN(e.As64(loss)[0]))
				require.NoError(t, nn.CTCLossBack(e.Engine, lp, tr, dx, 1))
				for i, v := range e.As64(dx) {
					require.Equal(t, i/2%2 == 0, math.IsNaN(v), "element %d", i)
				}
				e.FreeAll(lp, loss, dx, tr.Targets, tr.Lengths, tr.TargetLengths)
			})
		})
	}
}

// Where samples' targets lie one after the other, no length of them overflows the sum with where they begin.
func TestCTCLossHugeTargetLength(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		lp := e.From(random(e.Rand, tensor.Float64, 3, 2, 2))
		tr := nn.Transcripts{Targets: e.From(intsOf([]int{2}, 1, 1)), Lengths: e.From(intsOf([]int{2}, 3, 3)), TargetLengths: e.From(intsOf([]int{2}, 1, math.MaxInt))}
		dx := must(e.Empty(tensor.Float64, 3, 2, 2))
		require.NoError(t, nn.CTCLossBack(e.Engine, lp, tr, dx, 1))
		for i, v := range e.As64(dx) {
			require.Equal(t, i/2%2 == 1, math.IsNaN(v), "element %d", i)
		}
		e.FreeAll(lp, dx, tr.Targets, tr.Lengths, tr.TargetLengths)
	})
}

func TestCTCLossErrors(t *testing.T) {
	both(t, func(t *testing.T, e *bench) {
		lp, loss, i := e.From(random(e.Rand, tensor.Float64, 3, 2, 2)), must(e.Empty(tensor.Float64, 1)), e.From(intsOf([]int{2}, 1, 1))
		tr := nn.Transcripts{Targets: i, Lengths: i, TargetLengths: i}
		none := nn.Transcripts{}
		floats := nn.Transcripts{Targets: i, Lengths: loss, TargetLengths: i}
		failures{
			"a matrix":        {nn.CTCLoss(e.Engine, i, tr, loss, false), cupool.ErrNotSupported},
			"nothing":         {nn.CTCLossBack(e.Engine, nil, tr, lp, 1), cupool.ErrNotSupported},
			"no targets":      {nn.CTCLoss(e.Engine, lp, none, loss, false), cupool.ErrNotSupported},
			"float lengths":   {nn.CTCLoss(e.Engine, lp, floats, loss, false), cupool.ErrNotSupported},
			"a loss a sample": {nn.CTCLoss(e.Engine, lp, tr, lp, false), cupool.ErrSizeMismatch},
			"gradient's size": {nn.CTCLossBack(e.Engine, lp, tr, loss, 1), cupool.ErrSizeMismatch},
			"in place":        {nn.CTCLossBack(e.Engine, lp, tr, lp, 1), cupool.ErrNotSupported},
		}.require(t)
		e.FreeAll(lp, loss, i)
	})
}
