package tensorop_test

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/enginetest"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// TestRandomExpressions computes random tensor expressions with tensor.StdEng, with
// an Engine on the host and with one on a GPU, and compares each step with a model: slices
// of float64, and for each tensor a list of where its elements are. Where StdEng errs,
// as faults says, the host engine has to err as it does.
func TestRandomExpressions(t *testing.T) {
	worlds := []*world{{name: "StdEng"}, {name: "host", Bench: enginetest.New(t, false)}}
	if gputest.Expected() {
		worlds = append(worlds, &world{name: "gpu", Bench: enginetest.NewGPU(t)})
	}
	testkit.Programs(t, 160, 120, func(c *testkit.Choices) (string, error) { return runExpression(c, worlds) })
}

// A world is where tensors are computed: with StdEng, or with an engine.
type world struct {
	name string
	*enginetest.Bench
}

// A buffer is memory that tensors lie in, as the model has it in each world.
type buffer struct{ data [][]float64 }

// A variable is a tensor of a program.
type variable struct {
	name    string
	shape   []int
	at      []int // where its elements are in buf, in row-major order
	buf     *buffer
	in      []*tensor.Dense // in each world
	moved   bool            // T was called
	columns bool            // it is in column-major order, or made from what is
	gaps    bool            // StdEng made it from a view
	cut     bool            // Slice was called
}

// values returns the elements in a world, as the model has them.
func (v *variable) values(w int) []float64 {
	r := make([]float64, len(v.at))
	for i, p := range v.at {
		r[i] = v.buf.data[w][p]
	}
	return r
}

// plain reports whether the elements are all of the buffer, in order.
func (v *variable) plain() bool {
	for i, p := range v.at {
		if i != p {
			return false
		}
	}
	return len(v.at) == len(v.buf.data[0])
}

// whole reports whether the elements are all of the buffer.
func (v *variable) whole() bool {
	s := slices.Sorted(slices.Values(v.at))
	return len(s) == len(v.buf.data[0]) && len(slices.Compact(s)) == len(s)
}

// narrow reports whether it is a column-major vector of two axes, which has one stride: tensor panics
// where it slices or transposes it.
func (v *variable) narrow() bool {
	return slices.ContainsFunc(v.in, func(d *tensor.Dense) bool { return len(d.Strides()) != len(v.shape) })
}

// expression is a program that runs.
type expression struct {
	*testkit.Choices
	dt     tensor.Dtype
	worlds []*world
	vars   []*variable
	text   strings.Builder
	others []float64 // special values of inputs
	over   bool      // a step ended otherwise than in every world the same
}

func runExpression(c *testkit.Choices, worlds []*world) (text string, err error) {
	x := &expression{Choices: c, worlds: worlds, dt: []tensor.Dtype{tensor.Float64, tensor.Float32, tensor.Float64, tensor.Float32, tensor.Float64, tensor.Int}[c.N(6)]}
	if c.Chance(3) && isFloat(x.dt) {
		x.others = special
	}
	var scopes []*cupool.Scope
	for _, w := range worlds {
		if w.Bench != nil {
			scopes = append(scopes, w.Scope())
		}
	}
	defer func() {
		for _, s := range scopes {
			err = errors.Join(err, s.Close())
		}
	}()
	err = testkit.Caught(func() error {
		fmt.Fprintf(&x.text, "// %v\n", x.dt)
		for range 1 + c.N(3) {
			x.input(x.shape())
		}
		for !c.Done() && !x.over {
			if err := x.step(); err != nil {
				return err
			}
		}
		return nil
	})
	return x.text.String(), err
}

// shape chooses a shape of up to four axes.
func (x *expression) shape() []int {
	s := make([]int, []int{1, 2, 2, 2, 3, 3, 4, 0}[x.N(8)])
	for i := range s {
		s[i] = []int{1, 2, 3, 4, 5, 1}[x.N(6)]
	}
	return s
}

func (x *expression) number() float64 {
	if x.others != nil && x.Chance(4) {
		return x.others[x.N(len(x.others))]
	}
	return x.round(float64(x.N(65)-24) / 8)
}

// round returns a number as the type has it.
func (x *expression) round(v float64) float64 {
	if isFloat(x.dt) {
		return v
	}
	return math.Trunc(v)
}

// input makes a variable with values that follow from a few choices.
func (x *expression) input(shape []int) *variable {
	values := make([]float64, tensor.Shape(shape).TotalSize())
	seed := x.N(256)
	for i := range values {
		values[i] = x.round(float64((i*37+seed*11+i*i*5)%65-24) / 8)
		if x.others != nil && (i+seed)%5 == 0 {
			values[i] = x.others[(i+seed)/5%len(x.others)]
		}
	}
	v := &variable{shape: shape, at: indices(len(values)), buf: &buffer{}}
	order := "row-major"
	var opts []tensor.ConsOpt
	if len(shape) > 1 && x.Chance(4) {
		order, opts = "column-major", []tensor.ConsOpt{tensor.AsFortran(nil)}
		v.at, v.columns = columnMajor(shape), true
	}
	memory := make([]float64, len(values))
	for i, p := range v.at {
		memory[p] = values[i]
	}
	for _, w := range x.worlds {
		d := hostTensor(x.dt, memory, shape, opts...)
		if w.Bench != nil {
			d = must(w.FromHost(d))
		}
		v.in = append(v.in, d)
		v.buf.data = append(v.buf.data, slices.Clone(memory))
	}
	x.add(v)
	fmt.Fprintf(&x.text, "%s := %s %v %v\n", v.name, order, shape, values)
	return v
}

// columnMajor returns where the elements of a shape are in column-major order.
func columnMajor(shape []int) []int {
	at := make([]int, tensor.Shape(shape).TotalSize())
	testkit.Coordinates(shape, func(i int, c []int) {
		for a := len(shape) - 1; a >= 0; a-- {
			at[i] = at[i]*shape[a] + c[a]
		}
	})
	return at
}

// hostTensor returns a tensor of StdEng with values in the order of memory.
func hostTensor(dt tensor.Dtype, values []float64, shape []int, opts ...tensor.ConsOpt) *tensor.Dense {
	s := reflect.MakeSlice(reflect.SliceOf(dt.Type), len(values), len(values))
	for i, v := range values {
		s.Index(i).Set(reflect.ValueOf(value(dt, v)))
	}
	if len(shape) == 0 {
		return tensor.New(tensor.FromScalar(s.Index(0).Interface()))
	}
	return tensor.New(append([]tensor.ConsOpt{tensor.WithShape(shape...), tensor.WithBacking(s.Interface())}, opts...)...)
}

func indices(n int) []int {
	r := make([]int, n)
	for i := range r {
		r[i] = i
	}
	return r
}

func (x *expression) add(v *variable) {
	v.name = fmt.Sprintf("v%d", len(x.vars))
	x.vars = append(x.vars, v)
}

func (x *expression) pick() *variable { return x.vars[x.N(len(x.vars))] }

// like returns a variable of a shape, an old one or a new one.
func (x *expression) like(shape []int) *variable {
	var found []*variable
	for _, v := range x.vars {
		if slices.Equal(v.shape, shape) {
			found = append(found, v)
		}
	}
	if len(found) > 0 && !x.Chance(3) {
		return found[x.N(len(found))]
	}
	return x.input(shape)
}

// A result is what a step makes in the model: elements, and for each how large the numbers are
// that it was rounded among.
type result struct {
	shape         []int
	values, scale []float64
}

// A call is an operation that all worlds compute.
type call struct {
	text string
	in   []*variable // the operands
	dst  *variable   // where the result goes, or nil
	incr bool        // it is added
	do   func(w int) (tensor.Tensor, error)
	want func(w int, in [][]float64) result
	eps  float64  // of rounding, in units of the type's
	kind string   // of the result, if it is not of the program's type: "bool", "int" or "value"
	tags []string // of faults
	axes []int
}

// run computes a step in all worlds and compares.
func (x *expression) run(c *call) error {
	fmt.Fprintf(&x.text, "%s\n", c.text)
	n := len(x.worlds)
	got, errs, before := make([]tensor.Tensor, n), make([]error, n), make([]int64, n)
	want, old := make([]result, n), make([][]float64, n)
	for w := range x.worlds {
		var in [][]float64
		for _, v := range c.in {
			in = append(in, v.values(w))
		}
		want[w] = c.want(w, in)
		if !isFloat(x.dt) {
			for i, v := range want[w].values {
				want[w].values[i] = math.Trunc(v)
				x.over = x.over || math.Abs(v) > 1e6 // which soon leaves the type's range
			}
		}
		if c.dst != nil {
			old[w] = c.dst.values(w)
		}
		if b := x.worlds[w].Bench; b != nil {
			before[w] = b.Stats().Fallbacks
		}
		errs[w] = testkit.Caught(func() (err error) { got[w], err = c.do(w); return err })
	}
	if errs[0] != nil { // the others may do what StdEng does not, but have to leave all operands alone
		x.over = true
		for w := 1; w < n; w++ {
			if errs[w] != nil && strings.HasPrefix(errs[w].Error(), "panic") && !strings.HasPrefix(errs[0].Error(), "panic") {
				return fmt.Errorf("%s: %s panics, StdEng fails: %w, %w", c.text, x.worlds[w].name, errs[w], errs[0])
			}
		}
		return nil
	}
	shape := slices.Clone([]int(got[0].Shape()))
	if !slices.Equal(squeezed(shape), squeezed(want[0].shape)) {
		x.over = true
		return fmt.Errorf("%s: the model has shape %v, StdEng %v", c.text, want[0].shape, shape)
	}
	fresh := &variable{shape: shape, at: indices(len(want[0].values)), buf: &buffer{}}
	fresh.moved = slices.Contains(c.tags, "SafeT") || slices.ContainsFunc(c.in, func(v *variable) bool { return v.moved }) // StdEng clones operands
	fresh.gaps = slices.ContainsFunc(c.in, func(v *variable) bool { return v.gaps || v.cut || !v.plain() })
	stock, right := []float64(nil), make([]bool, n)
	var bad []error
	for w := range x.worlds {
		name := x.worlds[w].name
		if errs[w] != nil && x.fault(c) == integersByZero {
			x.over = true
			return nil
		}
		if errs[w] != nil {
			return fmt.Errorf("%s: %s fails, StdEng does not: %w", c.text, name, errs[w])
		}
		d := got[w].(*tensor.Dense)
		if !slices.Equal([]int(d.Shape()), shape) {
			return fmt.Errorf("%s: %s has shape %v, StdEng %v", c.text, name, d.Shape(), shape)
		}
		values, err := x.read(w, d)
		if err != nil {
			return fmt.Errorf("%s: %s cannot be read: %w", c.text, name, err)
		}
		res := want[w]
		if c.incr {
			if x.dt == tensor.Float32 { // where the sum's parts may be infinities
				for i, v := range res.values {
					res.values[i] = float64(float32(v))
				}
			}
			res = add(old[w], res)
		}
		wrong := x.differs(c, res, values)
		right[w] = wrong == nil
		if w == 0 {
			stock = values
		}
		if wrong != nil && w > 0 {
			fault := x.fault(c)
			inherited := fault != "" && (x.worlds[w].GPU && x.worlds[w].Stats().Fallbacks > before[w] || !x.worlds[w].GPU)
			if !inherited || x.apart(values, stock) && !x.parted(c, w) && !x.finite(c, res, values) {
				bad = append(bad, fmt.Errorf("%s: %s computes %v, want %v, StdEng %v: %w (fault %q)", c.text, name, values, res.values, stock, wrong, fault))
			}
		}
		fresh.in, fresh.buf.data = append(fresh.in, d), append(fresh.buf.data, values)
		if c.dst != nil {
			if got[w] != tensor.Tensor(c.dst.in[w]) {
				if w == 0 {
					x.over = true // StdEng heeds no WithReuse there
					return nil
				}
				return fmt.Errorf("%s: %s returns another tensor than the one to be written", c.text, name)
			}
			for i, p := range c.dst.at {
				c.dst.buf.data[w][p] = values[i]
			}
		}
	}
	if len(bad) > 0 {
		return errors.Join(bad...)
	}
	if c.dst != nil {
		c.dst.shape = shape
	} else if c.kind == "" {
		x.add(fresh)
		fmt.Fprintf(&x.text, "  // is %s\n", fresh.name)
	}
	return x.check(c.text)
}

// check compares all variables with the model: a step may have written where it
// should not.
func (x *expression) check(text string) error {
	for _, v := range x.vars {
		for w := range x.worlds {
			values, err := x.read(w, v.in[w])
			if err != nil {
				return fmt.Errorf("after %s: %s cannot be read in %s: %w", text, v.name, x.worlds[w].name, err)
			}
			for i, want := range v.values(w) {
				if !alike(want, values[i]) {
					if w == 0 {
						x.over = true // StdEng wrote to what it should not
						return nil
					}
					return fmt.Errorf("after %s: %s is %v in %s, want %v", text, v.name, values, x.worlds[w].name, v.values(w))
				}
			}
		}
	}
	return nil
}

// read returns a tensor's elements, those of an engine by ToHost.
func (x *expression) read(w int, d *tensor.Dense) ([]float64, error) {
	b := x.worlds[w].Bench
	if b == nil {
		return elementsAt(d)
	}
	h, err := b.ToHost(d)
	if err != nil {
		return nil, err
	}
	values, err := elementsAt(h)
	if err == nil && !b.Far {
		own, err := elementsAt(d)
		if err != nil {
			return nil, err
		}
		for i := range own {
			if !alike(own[i], values[i]) {
				return nil, fmt.Errorf("ToHost copies %v of %v", values, own)
			}
		}
	}
	return values, err
}

// elementsAt returns the elements by their coordinates.
func elementsAt(d *tensor.Dense) ([]float64, error) {
	shape := d.Shape()
	r := make([]float64, shape.TotalSize())
	if len(shape) == 0 || len(r) == 1 {
		r[0] = number(d.Get(0))
		return r, nil
	}
	at := make([]int, len(shape))
	for i := range r {
		v, err := d.At(at...)
		if err != nil {
			return nil, err
		}
		r[i] = number(v)
		for a := len(at) - 1; a >= 0; a-- {
			if at[a]++; at[a] < shape[a] {
				break
			}
			at[a] = 0
		}
	}
	return r, nil
}

func number(v interface{}) float64 {
	switch v := v.(type) {
	case bool:
		if v {
			return 1
		}
		return 0
	case int:
		return float64(v)
	case float32:
		return float64(v)
	}
	return v.(float64)
}

func alike(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// add is r added to what there was.
func add(old []float64, r result) result {
	sum := result{r.shape, make([]float64, len(old)), make([]float64, len(old))}
	for i := range old {
		sum.values[i] = old[i] + r.values[i]
		sum.scale[i] = math.Abs(old[i]) + math.Abs(r.values[i]) + scaleOf(r, i)
	}
	return sum
}

func scaleOf(r result, i int) float64 {
	if r.scale == nil {
		return math.Abs(r.values[i])
	}
	return r.scale[i]
}

// differs returns nil if values are those wanted but for rounding.
func (x *expression) differs(c *call, want result, values []float64) error {
	if len(values) != len(want.values) {
		return fmt.Errorf("%d elements, want %d", len(values), len(want.values))
	}
	eps, least := 4e-16, 1e-306 // what is smaller may become zero
	if x.dt == tensor.Float32 {
		eps, least = 2e-7, 1e-38
	}
	most := math.Inf(1)                  // what is larger may become infinite
	if slices.Contains(c.tags, "Norm") { // as squares may
		least = 8 * math.Sqrt(least)
		most = 1 / least
	}
	for i, v := range want.values {
		if x.dt == tensor.Float32 {
			v = float64(float32(v))
		}
		if alike(v, values[i]) || v > most && math.IsInf(values[i], 1) {
			continue
		}
		bound := eps * max(c.eps, 2) * scaleOf(want, i)
		if d := math.Abs(v - values[i]); !(d <= bound) && !(d < least) {
			return fmt.Errorf("element %d is %v, want %v", i, values[i], v)
		}
	}
	return nil
}

// finite reports whether the finite ones of the elements wanted are right. The engines
// compute some of what StdEng gets wrong by StdEng, of copies in order.
func (x *expression) finite(c *call, want result, values []float64) bool {
	want.values = slices.Clone(want.values)
	for i, v := range want.values {
		if !enginetest.IsFinite(v) {
			want.values[i] = values[i]
		}
	}
	return x.differs(c, want, values) == nil
}

// parted reports whether the operands of a step have other values in a world than with
// StdEng, which erred before, or lie in another way.
func (x *expression) parted(c *call, w int) bool {
	return slices.ContainsFunc(c.in, func(v *variable) bool { return v.gaps || x.apart(v.values(w), v.values(0)) })
}

// apart reports whether results that are not right are not the same either.
func (x *expression) apart(a, b []float64) bool {
	eps := 1e-10
	if x.dt == tensor.Float32 {
		eps = 1e-4
	}
	for i := range a {
		if !alike(a[i], b[i]) && (math.IsInf(b[i], 0) || !(math.Abs(a[i]-b[i]) <= eps*(1+math.Abs(b[i])))) {
			return true
		}
	}
	return false
}

func squeezed(s []int) (r []int) {
	for _, n := range s {
		if n != 1 {
			r = append(r, n)
		}
	}
	return r
}
