package cupool_test

import (
	"errors"
	"fmt"
	"log"
	"maps"
	"runtime"
	"slices"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/nn"
)

// Options are gathered before the engine is made.
func ExampleEngineOption() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	stream, err := pool.NewStream()
	if err != nil {
		log.Fatal(err)
	}

	fast := true // or the value of a flag
	opts := []cupool.EngineOption{cupool.WithStream(stream)}
	if fast {
		opts = append(opts, cupool.WithTF32())
	}
	eng, err := cupool.NewEngine(pool, opts...)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(eng.Stream() == stream)
	// Output: true
}

// Memory without a tensor, by the methods that tensor calls itself. Sizes are
// in bytes.
func ExampleEngine_Alloc() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}

	mem, err := eng.Alloc(16) // zeroed
	if err != nil {
		log.Fatal(err)
	}
	if err := eng.Memset(mem, float32(2)); err != nil { // every element of this type
		log.Fatal(err)
	}
	host := tensor.New(tensor.WithShape(4), tensor.Of(tensor.Float32))
	if err := eng.Memcpy(host, mem); err != nil {
		log.Fatal(err)
	}
	fmt.Println(host)

	eng.Memclr(mem) // has no error to return: Sync does
	if err := errors.Join(eng.Sync(), eng.Memcpy(host, mem), eng.Free(mem, 16)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(host)
	// Output:
	// [2  2  2  2]
	// [0  0  0  0]
}

// A tensor's numbers are read where they are if the CPU may do that, and else
// from a copy.
func ExampleEngine_Accessible() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	numbers := func(eng *cupool.Engine, x *tensor.Dense) ([]float32, error) {
		if !eng.AllocAccessible() { // as that of a GPU
			h, err := eng.ToHost(x)
			if err != nil {
				return nil, err
			}
			return h.Float32s(), nil
		}
		_, err := eng.Accessible(x) // waits for what the device still does
		return x.Float32s(), err
	}

	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2, 3})))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(numbers(eng, x))
	// Output: [1 2 3] <nil>
}

// What tensor asks an engine before it makes a tensor: whether it has memory of
// its own, and whether it takes the order of the elements. It takes every one.
func ExampleEngine_WorksWith() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors

	eng.NonStdAlloc() // does nothing: having the method says that Alloc is to be called
	x := tensor.New(tensor.WithShape(2, 3), tensor.Of(tensor.Float32), tensor.AsFortran(nil), tensor.WithEngine(eng))
	fmt.Println(eng.WorksWith(x.DataOrder()), eng.Owns(x))
	// Output:
	// true true
}

// An error says what was tried (Op) and why it failed (Err), which errors.Is
// and errors.As look into.
func ExampleEngineError() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2, 3})))
	if err != nil {
		log.Fatal(err)
	}
	y, err := eng.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2})))
	if err != nil {
		log.Fatal(err)
	}

	wrong := eng.Copy(x, y)
	if err := eng.FreeTensor(x); err != nil {
		log.Fatal(err)
	}
	for _, err := range []error{wrong, eng.Zero(x), eng.FreeTensor(x)} {
		var failed *cupool.EngineError
		if !errors.As(err, &failed) {
			log.Fatal(err)
		}
		fmt.Printf("%s failed: %v\n", failed.Op, failed.Err)
		if errors.Is(err, cupool.ErrUseAfterFree) {
			fmt.Println("a tensor was used that had been freed")
		}
	}
	// Output:
	// copy failed: (2) of float32 to (3) of float32: wrong size
	// zero failed: use after free
	// a tensor was used that had been freed
	// free failed: tensor of shape (3): double free
}

// distant is a device whose memory the CPU cannot touch, as that of a GPU.
type distant struct{ cupool.Driver }

func (distant) HostAccessible() bool { return false }

// Operations that the device has no kernel for are computed on copies, which
// takes long: EngineStats tell which those are. This device has none at all.
func ExampleEngine_Stats() {
	host, err := cupool.OpenHost(cupool.HostConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer host.Close()
	pool, err := cupool.New(cupool.Config{Driver: distant{host}})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors

	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float32{1, 2, 3})))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := tensor.Add(x, x); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if _, err := tensor.Square(x); err != nil {
			log.Fatal(err)
		}
	}

	show := func(st cupool.EngineStats) {
		fmt.Println(st.Fallbacks, "operations on copies,", st.Bytes, "bytes copied")
		for _, op := range slices.Sorted(maps.Keys(st.ByOp)) {
			fmt.Println(op, st.ByOp[op])
		}
	}
	show(eng.Stats())
	// Output:
	// 3 operations on copies, 84 bytes copied
	// Add 1
	// Square 2
}

// Arithmetic on two tensors of one shape. tensor.Add calls the Add of its first
// operand's engine, and so do the others: either way will do.
func ExampleEngine_Add() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	vector := func(values ...float64) tensor.Tensor {
		t, err := eng.FromHost(tensor.New(tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	x, y := vector(5, 6, 7), vector(2, 2, 2)

	for _, op := range []struct {
		name string
		f    func(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	}{
		{"+", eng.Add}, {"-", eng.Sub}, {"*", eng.Mul}, {"/", eng.Div}, {"pow", eng.Pow}, {"mod", eng.Mod},
	} {
		z, err := op.f(x, y)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("x", op.name, "y =", z)
	}
	// Output:
	// x + y = [7  8  9]
	// x - y = [3  4  5]
	// x * y = [10  12  14]
	// x / y = [2.5    3  3.5]
	// x pow y = [25  36  49]
	// x mod y = [1  0  1]
}

// Arithmetic on a tensor and a number of its element type, which may stand on
// either side: leftTensor says whether the tensor is the left operand.
func ExampleEngine_AddScalar() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 4, 8})))
	if err != nil {
		log.Fatal(err)
	}

	for _, op := range []struct {
		name string
		f    func(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	}{
		{"+", eng.AddScalar}, {"-", eng.SubScalar}, {"*", eng.MulScalar},
		{"/", eng.DivScalar}, {"pow", eng.PowScalar}, {"mod", eng.ModScalar},
	} {
		left, err := op.f(x, 2.0, true) // tensor.Sub(x, 2.0)
		if err != nil {
			log.Fatal(err)
		}
		right, err := op.f(x, 2.0, false) // tensor.Sub(2.0, x)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("x %s 2 = %v, 2 %s x = %v\n", op.name, left, op.name, right)
	}
	// Output:
	// x + 2 = [ 3   6  10], 2 + x = [ 3   6  10]
	// x - 2 = [-1   2   6], 2 - x = [ 1  -2  -6]
	// x * 2 = [ 2   8  16], 2 * x = [ 2   8  16]
	// x / 2 = [0.5    2    4], 2 / x = [   2   0.5  0.25]
	// x pow 2 = [ 1  16  64], 2 pow x = [  2   16  256]
	// x mod 2 = [1  0  0], 2 mod x = [0  2  2]
}

// Comparisons of two tensors tell in tensors of bool, or with AsSameType in
// ones and zeros to compute on with.
func ExampleEngine_Gt() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	vector := func(values ...float32) tensor.Tensor {
		t, err := eng.FromHost(tensor.New(tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	x, y := vector(1, 2, 3), vector(2, 2, 2)

	for _, op := range []struct {
		name string
		f    func(a, b tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	}{
		{">", eng.Gt}, {">=", eng.Gte}, {"<", eng.Lt}, {"<=", eng.Lte}, {"=", eng.ElEq}, {"≠", eng.ElNe},
	} {
		is, err := op.f(x, y) // tensor.Gt(x, y)
		if err != nil {
			log.Fatal(err)
		}
		ones, err := op.f(x, y, tensor.AsSameType())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("x", op.name, "y:", is.Data(), ones.Data())
	}
	// Output:
	// x > y: [false false true] [0 0 1]
	// x >= y: [false true true] [0 1 1]
	// x < y: [true false false] [1 0 0]
	// x <= y: [true true false] [1 1 0]
	// x = y: [false true false] [0 1 0]
	// x ≠ y: [true false true] [1 0 1]
}

// Comparisons with a number: here, how many elements each is true of.
func ExampleEngine_GtScalar() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4, 5})))
	if err != nil {
		log.Fatal(err)
	}

	for _, op := range []struct {
		name string
		f    func(t tensor.Tensor, s interface{}, leftTensor bool, opts ...tensor.FuncOpt) (tensor.Tensor, error)
	}{
		{"> 2", eng.GtScalar}, {">= 2", eng.GteScalar}, {"< 2", eng.LtScalar},
		{"<= 2", eng.LteScalar}, {"= 2", eng.EqScalar}, {"≠ 2", eng.NeScalar},
	} {
		ones, err := op.f(x, 2.0, true, tensor.AsSameType()) // tensor.Gt(x, 2.0, tensor.AsSameType())
		if err != nil {
			log.Fatal(err)
		}
		count, err := eng.Sum(ones)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(op.name+":", count)
	}
	// Output:
	// > 2: 3
	// >= 2: 4
	// < 2: 1
	// <= 2: 2
	// = 2: 1
	// ≠ 2: 4
}

// The smaller and the larger of two elements, and of an element and a number.
func ExampleEngine_MinBetween() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	vector := func(values ...float32) tensor.Tensor {
		t, err := eng.FromHost(tensor.New(tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	show := func(t tensor.Tensor, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t)
	}

	x, y := vector(-2, 1, 4), vector(3, 2, 1)
	show(eng.MinBetween(x, y)) // tensor.MinBetween(x, y)
	show(eng.MaxBetween(x, y))
	show(eng.MinBetweenScalar(x, float32(2), true))
	show(eng.MaxBetweenScalar(x, float32(0), true)) // ReLU
	// Output:
	// [-2   1   1]
	// [3  2  4]
	// [-2   1   2]
	// [0  1  4]
}

// Functions of every element.
func ExampleEngine_Sqrt() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	vector := func(values ...float64) tensor.Tensor {
		t, err := eng.FromHost(tensor.New(tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	x, y := vector(-2, 0.5, 3), vector(1, 4, 64)

	for _, op := range []struct {
		name string
		f    func(a tensor.Tensor, opts ...tensor.FuncOpt) (tensor.Tensor, error)
		a    tensor.Tensor
	}{
		{"-x", eng.Neg, x}, {"|x|", eng.Abs, x}, {"sign x", eng.Sign, x}, {"x²", eng.Square, x}, {"x³", eng.Cube, x},
		{"exp x", eng.Exp, x}, {"tanh x", eng.Tanh, x}, {"ln y", eng.Log, y}, {"log₂ y", eng.Log2, y}, {"log₁₀ y", eng.Log10, y},
		{"1/y", eng.Inv, y}, {"√y", eng.Sqrt, y}, {"∛y", eng.Cbrt, y}, {"1/√y", eng.InvSqrt, y},
	} {
		r, err := op.f(op.a) // tensor.Neg(x)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %.3g\n", op.name, r.Data())
	}
	// Output:
	// -x: [2 -0.5 -3]
	// |x|: [2 0.5 3]
	// sign x: [-1 1 1]
	// x²: [4 0.25 9]
	// x³: [-8 0.125 27]
	// exp x: [0.135 1.65 20.1]
	// tanh x: [-0.964 0.462 0.995]
	// ln y: [0 1.39 4.16]
	// log₂ y: [0 2 6]
	// log₁₀ y: [0 0.602 1.81]
	// 1/y: [1 0.25 0.0156]
	// √y: [1 2 8]
	// ∛y: [1 1.59 4]
	// 1/√y: [1 0.5 0.125]
}

// Tensors in a pool, computed with as usual.
func ExampleEngine() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}

	x := tensor.New(tensor.WithShape(2, 3), tensor.Of(tensor.Float32), tensor.WithEngine(eng)) // zeroed
	if err := x.Memset(float32(2)); err != nil {
		log.Fatal(err)
	}
	y, err := tensor.Add(x, float32(1))
	if err != nil {
		log.Fatal(err)
	}
	sum, err := tensor.Sum(y, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum, eng.Owns(sum))

	if err := eng.FreeTensor(x, y, sum); err != nil {
		log.Fatal(err)
	}
	fmt.Println(pool.Stats().All.Allocation.Current, "blocks live")
	// Output:
	// [6  6  6] true
	// 0 blocks live
}

// A training step frees all of its temporaries at once.
func ExampleEngine_Scope() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	weights, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2, 3})))
	if err != nil {
		log.Fatal(err)
	}

	step := func() (loss tensor.Tensor, err error) {
		sc := eng.Scope()
		defer sc.Close()
		squares, err := tensor.Square(weights)
		if err != nil {
			return nil, err
		}
		if loss, err = tensor.Sum(squares); err != nil {
			return nil, err
		}
		return loss, sc.Keep(loss)
	}
	for range 100 {
		loss, err := step()
		if err != nil {
			log.Fatal(err)
		}
		if err := eng.FreeTensor(loss); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(pool.Stats().All.Allocation.Current, "block live: the weights")
	if err := eng.FreeTensor(weights); err != nil {
		log.Fatal(err)
	}
	// Output:
	// 1 block live: the weights
}

// Try turns tensor's panic into an error.
func ExampleTry() {
	pool, err := cupool.New(cupool.Config{Limit: 32 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	err = cupool.Try(func() error {
		tensor.New(tensor.WithShape(1<<24), tensor.Of(tensor.Float32), tensor.WithEngine(eng))
		return nil
	})
	var oom *cupool.OOMError
	fmt.Println(errors.As(err, &oom) && oom.Requested == 64<<20)
	// Output:
	// true
}

// A graph is for GPUs: elsewhere a program goes on without.
func ExampleEngine_Capture() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	stream, err := pool.NewStream() // the default stream cannot be captured
	if err != nil {
		log.Fatal(err)
	}
	eng, err := cupool.NewEngine(pool, cupool.WithStream(stream))
	if err != nil {
		log.Fatal(err)
	}
	w, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2})))
	g, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{10, 20})))
	rate, _ := eng.FromHost(tensor.New(tensor.WithBacking([]float64{0})))
	defer eng.FreeTensor(w, g, rate)
	step := func() error { return nn.SGD{Rate: rate}.Step(eng, nn.Param{Value: w, Grad: g}) }

	var graph *cupool.Graph
	graph, err = eng.Capture(step)
	switch {
	case err == nil:
		defer graph.Close()
		step = graph.Launch
	case !errors.Is(err, cupool.ErrNotSupported):
		log.Fatal(err)
	}
	for _, r := range []float64{0.01, 0.03} { // the graph reads it when it runs
		if err := eng.Copy(rate, tensor.New(tensor.WithBacking([]float64{r}))); err != nil {
			log.Fatal(err)
		}
		if err := step(); err != nil {
			log.Fatal(err)
		}
	}
	h, _ := eng.ToHost(w)
	fmt.Printf("%.1f\n", h.Data())
	// Output: [0.6 1.2]
}

// What does not fill the device runs beside something else in a graph: here the
// weights' gradient and update, beside the gradient that the layer before needs.
func ExampleEngine_Fork() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	scope := eng.Scope()
	defer scope.Close()
	matrix := func(values ...float64) *tensor.Dense {
		t, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking(values)))
		return t
	}
	x, w, dz, dx, dw := matrix(1, 0, 0, 1), matrix(1, 2, 3, 4), matrix(1, 1, 0, 1), matrix(0, 0, 0, 0), matrix(0, 0, 0, 0)

	back := func() error { // for Capture; it may as well be called
		weights := func() error { return nn.LinearBack(eng, x, w, dz, nil, dw, nil, nn.NoActivation) }
		if err := eng.Fork(weights); err != nil {
			return err
		}
		if err := nn.LinearBack(eng, x, w, dz, dx, nil, nil, nn.NoActivation); err != nil {
			return err
		}
		update := func() error { return nn.SGD{LearningRate: 1}.Step(eng, nn.Param{Value: w, Grad: dw}) }
		if err := eng.Fork(update); err != nil { // after dx, which is made from w
			return err
		}
		return eng.Join() // before whatever reads w
	}
	if err := back(); err != nil {
		log.Fatal(err)
	}
	for _, t := range []tensor.Tensor{dx, w} {
		h, _ := eng.ToHost(t)
		fmt.Println(h.Data())
	}
	// Output:
	// [3 7 2 4]
	// [0 1 3 3]
}

// A safety net: what a program forgets to free goes back when the garbage
// collector has found it.
func ExampleWithLifetimes() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	eng, err := cupool.NewEngine(pool, cupool.WithLifetimes())
	if err != nil {
		log.Fatal(err)
	}
	row := func() tensor.View {
		x := tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 2, 3, 4}))
		y, err := eng.FromHost(x)
		if err != nil {
			log.Fatal(err)
		}
		if _, err := tensor.Exp(y); err != nil { // forgotten
			log.Fatal(err)
		}
		row, err := y.Slice(tensor.S(1))
		if err != nil {
			log.Fatal(err)
		}
		return row // which keeps all of y's memory
	}()
	for pool.Stats().All.Allocation.Current > 1 {
		runtime.GC()
		if _, err := pool.ProcessDeferred(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(row.Data(), cupool.EngineOf(row) == eng)
	// Output: [3 4] true
}

// Tensors that tensor makes by itself are given to Track.
func ExampleEngine_Track() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	eng, err := cupool.NewEngine(pool, cupool.WithLifetimes())
	if err != nil {
		log.Fatal(err)
	}
	x := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(3, 3), tensor.WithEngine(eng))
	if err := eng.Track(x); err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.Sum())
	for pool.Stats().All.Allocation.Current > 0 {
		runtime.GC()
		if _, err := pool.ProcessDeferred(); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("given back")
	// Output:
	// 0 <nil>
	// given back
}

// A step's memory that the next step may still need.
func ExampleScope_Leave() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	var last *cupool.Scope
	for range 3 {
		step := eng.Scope()
		if _, err := eng.Empty(tensor.Float32, 100); err != nil {
			log.Fatal(err)
		}
		step.Leave()
		if last != nil {
			if err := last.Close(); err != nil {
				log.Fatal(err)
			}
		}
		last = step
	}
	fmt.Println(pool.Stats().All.Allocation.Current, last.Close())
	// Output: 1 <nil>
}

// Products of a matrix and vectors, into tensors that are there.
func ExampleEngine_MatVecMul() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	m, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
	if err != nil {
		log.Fatal(err)
	}
	zeros := func(shape ...int) *tensor.Dense {
		return tensor.New(tensor.WithShape(shape...), tensor.Of(tensor.Float64), tensor.WithEngine(eng))
	}
	x, y, grad := zeros(3), zeros(2), zeros(2, 3)
	if err := x.Memset(1.0); err != nil {
		log.Fatal(err)
	}

	if err := eng.MatVecMul(m, x, y); err != nil { // tensor.MatVecMul(m, x, tensor.WithReuse(y))
		log.Fatal(err)
	}
	fmt.Println("m·x =", y)
	for range 2 {
		if err := eng.Outer(y, x, grad); err != nil { // adds to grad
			log.Fatal(err)
		}
	}
	fmt.Println("y⊗x, twice:", grad.Data())
	// Output:
	// m·x = [ 6  15]
	// y⊗x, twice: [12 12 12 30 30 30]
}

// Products that choose by the shapes, and those that are a number.
func ExampleEngine_Dot() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	m, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4})))
	if err != nil {
		log.Fatal(err)
	}
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 10})))
	if err != nil {
		log.Fatal(err)
	}

	for _, y := range []tensor.Tensor{m, x} {
		for _, z := range []tensor.Tensor{m, x} {
			product, err := eng.Dot(y, z) // tensor.Dot(y, z)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(y.Shape(), "·", z.Shape(), "=", product.Data())
		}
	}
	inner, err := eng.Inner(x, x) // x.Inner(x)
	if err != nil {
		log.Fatal(err)
	}
	trace, err := eng.Trace(m) // m.Trace()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(inner.(float64), trace.(float64))
	// Output:
	// (2, 2) · (2, 2) = [7 10 15 22]
	// (2, 2) · (2) = [21 43]
	// (2) · (2, 2) = [31 42]
	// (2) · (2) = 101
	// 101 5
}

// Singular values and vectors: the matrix is U·diag(s)·Vᵀ.
func ExampleEngine_SVD() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	m, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{0, 2, 3, 0})))
	if err != nil {
		log.Fatal(err)
	}

	s, u, v, err := eng.SVD(m, true, false) // m.SVD(true, false)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.1f, in the pool: %v\n", s.Data(), eng.Owns(s) && eng.Owns(u) && eng.Owns(v))
	// Output:
	// [3.0 2.0], in the pool: true
}

// Norms of the rows of a matrix, and of all of it.
func ExampleEngine_Norm() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	m, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{3, 4, 0, 12})))
	if err != nil {
		log.Fatal(err)
	}

	for _, n := range []struct {
		name string
		ord  tensor.NormOrder
		axes []int
	}{
		{"Σ|x| of rows", tensor.Norm(1), []int{1}},
		{"√Σx² of rows", tensor.Norm(2), []int{1}},
		{"√Σx² of all", tensor.FrobeniusNorm(), []int{0, 1}},
	} {
		norm, err := eng.Norm(m, n.ord, n.axes...) // unlike m.Norm, it loses no temporaries
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(n.name, norm)
	}
	// Output:
	// Σ|x| of rows [ 7  12]
	// √Σx² of rows [ 5  12]
	// √Σx² of all 13
}

// A product over two axes at once: the sum of the products of all elements of
// two matrices for each of the others' indices.
func ExampleEngine_Contract() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	a, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2, 2), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6, 7, 8})))
	if err != nil {
		log.Fatal(err)
	}
	b, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2, 1), tensor.WithBacking([]float64{1, 10, 100, 1000})))
	if err != nil {
		log.Fatal(err)
	}

	c, err := eng.Contract(a, b, []int{1, 2}, []int{0, 1}) // unlike tensor.Contract, it loses no temporaries
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(c.Shape(), c.Data())
	// Output:
	// (2, 1) [4321 8765]
}

func ExampleEngine_BatchMatMul() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	a, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 1, 2), tensor.WithBacking([]float64{1, 2, 3, 4})))
	b, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 2, 1), tensor.WithBacking([]float64{1, 10, 100, 1000})))
	c, _ := eng.Empty(tensor.Float64, 2, 1, 1)
	defer eng.FreeTensor(a, b, c)
	if err := eng.BatchMatMul(a, b, c); err != nil {
		log.Fatal(err)
	}
	h, _ := eng.ToHost(c)
	fmt.Println(h.Data())
	// Output: [21 4300]
}

// tensor.MatMul makes the tensor for its result; MatMul writes to one that is
// there.
func ExampleEngine_MatMul() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	a, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4})))
	b, _ := eng.FromHost(tensor.New(tensor.WithShape(2, 1), tensor.WithBacking([]float64{1, 10})))
	c, _ := eng.Empty(tensor.Float64, 2, 1)
	defer eng.FreeTensor(a, b, c)
	if err := eng.MatMul(a, b, c); err != nil {
		log.Fatal(err)
	}
	h, _ := eng.ToHost(c)
	fmt.Println(h.Data())
	// Output: [21 43]
}

// Where a result goes: to a new tensor, to one that is there, or on top of what
// is in one.
func ExampleEngine_FMA() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	vector := func(values ...float64) tensor.Tensor {
		t, err := eng.FromHost(tensor.New(tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	show := func(t tensor.Tensor, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t)
	}

	x, y, sum := vector(1, 2, 3), vector(10, 20, 30), vector(0, 0, 0)
	show(eng.Mul(x, y))                        // a new tensor
	show(eng.Mul(x, y, tensor.WithReuse(sum))) // sum = x·y
	show(eng.FMA(x, y, sum))                   // sum += x·y, as tensor.WithIncr(sum) does
	show(eng.FMAScalar(x, 100.0, sum))         // sum += x·100
	show(eng.Add(x, y, tensor.UseUnsafe()))    // x += y
	// Output:
	// [10  40  90]
	// [10  40  90]
	// [ 20   80  180]
	// [120  280  480]
	// [11  22  33]
}

// Elements between bounds, and a function of one's own.
func ExampleEngine_Map() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float32{-8, -1, 0, 1, 8})))
	if err != nil {
		log.Fatal(err)
	}

	clamped, err := eng.Clamp(x, float32(-2), float32(2)) // tensor.Clamp
	if err != nil {
		log.Fatal(err)
	}
	leaky := func(v float32) float32 { return max(v, v/4) }
	mapped, err := eng.Map(leaky, x) // x.Apply(leaky)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(clamped)
	fmt.Println(mapped)
	// Output:
	// [-2  -1   0   1   2]
	// [   -2  -0.25      0      1      8]
}

// SoftMax makes probabilities of each row. Its gradient is made from its result
// and the gradient by that.
func ExampleEngine_SoftMax() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	matrix := func(values ...float64) tensor.Tensor {
		t, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	show := func(name string, t tensor.Tensor, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %.3f\n", name, t.Data())
	}

	x, grad := matrix(0, 0, 2, 0), matrix(1, 0, 1, 0)
	p, err := eng.SoftMax(x, 1) // tensor.SoftMax(x, 1): along axis 1
	show("p", p, err)
	dx, err := eng.SoftMaxB(p, grad, 1)
	show("dx", dx, err)
	logP, err := eng.LogSoftMax(x, 1)
	show("log p", logP, err)
	dx, err = eng.LogSoftMaxB(logP, grad, 1)
	show("dx", dx, err)
	// Output:
	// p [0.500 0.500 0.881 0.119]
	// dx [0.250 -0.250 0.105 -0.105]
	// log p [-0.693 -0.693 -0.127 -2.127]
	// dx [0.500 -0.500 0.119 -0.119]
}

// Reductions along an axis, or of all elements.
func ExampleEngine_Sum() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 5, 3, 6, 4, 2})))
	if err != nil {
		log.Fatal(err)
	}

	for _, op := range []struct {
		name string
		f    func(a tensor.Tensor, along ...int) (tensor.Tensor, error)
	}{{"sum", eng.Sum}, {"smallest", eng.Min}, {"largest", eng.Max}} {
		all, err := op.f(x) // tensor.Sum(x); x.Min()
		if err != nil {
			log.Fatal(err)
		}
		columns, err := op.f(x, 0)
		if err != nil {
			log.Fatal(err)
		}
		rows, err := op.f(x, 1)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %v, of columns %v, of rows %v\n", op.name, all, columns, rows)
	}
	// Output:
	// sum: 21, of columns [7  9  5], of rows [ 9  12]
	// smallest: 1, of columns [1  4  2], of rows [1  2]
	// largest: 6, of columns [6  5  3], of rows [5  6]
}

// Where the largest and the smallest elements of each row are.
func ExampleEngine_Argmax() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 5, 3, 6, 4, 2})))
	if err != nil {
		log.Fatal(err)
	}

	largest, err := eng.Argmax(x, 1) // tensor.Argmax(x, 1)
	if err != nil {
		log.Fatal(err)
	}
	smallest, err := eng.Argmin(x, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(largest, smallest)
	// Output:
	// [1  0] [0  2]
}

// A reduction by a function of one's own, here the products of columns.
func ExampleEngine_Reduce() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
	if err != nil {
		log.Fatal(err)
	}

	product := func(a, b float64) float64 { return a * b }
	r, err := eng.Reduce(product, x, 0, 1.0) // x.Reduce(product, 0, 1.0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
	// Output: [ 4  10  18]
}

// Reductions by functions of whole slices take three: for the first axis, for
// the last one, and of two elements for those in between.
func ExampleEngine_OptimizedReduce() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, 2, 3, 4, 5, 6})))
	if err != nil {
		log.Fatal(err)
	}

	first := func(into, from []float64) {
		for i := range into {
			into[i] *= from[i]
		}
	}
	last := func(a []float64) float64 {
		r := 1.0
		for _, v := range a {
			r *= v
		}
		return r
	}
	between := func(a, b float64) float64 { return a * b }
	for axis := range 2 {
		r, err := eng.OptimizedReduce(x, axis, first, last, between, 1.0)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r)
	}
	// Output:
	// [ 4  10  18]
	// [  6  120]
}

// T says that a tensor is transposed, and Transpose moves its elements, which
// makes reading them faster.
func ExampleEngine_Transpose() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6})))
	if err != nil {
		log.Fatal(err)
	}

	if err := x.T(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.Shape(), x.Data())
	if err := x.Transpose(); err != nil { // which has eng.Transpose do it
		log.Fatal(err)
	}
	fmt.Println(x.Shape(), x.Data())
	// Output:
	// (3, 2) [1 2 3 4 5 6]
	// (3, 2) [1 4 2 5 3 6]
}

// A view becomes a tensor with memory of its own.
func ExampleEngine_Materialize() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6})))
	if err != nil {
		log.Fatal(err)
	}

	columns, err := x.Slice(nil, tensor.S(1, 3)) // a view of two of the columns
	if err != nil {
		log.Fatal(err)
	}
	y, err := eng.Materialize(columns)
	if err != nil {
		log.Fatal(err)
	}
	if err := eng.Zero(x); err != nil {
		log.Fatal(err)
	}
	fmt.Println(y.Shape(), y.Data())
	// Output:
	// (2, 2) [2 3 5 6]
}

// Tensors one after another, and side by side along an axis of their own.
func ExampleEngine_Concat() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2})))
	if err != nil {
		log.Fatal(err)
	}
	y, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{3, 4})))
	if err != nil {
		log.Fatal(err)
	}

	long, err := eng.Concat(x, 0, y) // tensor.Concat(0, x, y)
	if err != nil {
		log.Fatal(err)
	}
	rows, err := eng.StackDense(x, 0, y) // tensor.Stack(0, x, y)
	if err != nil {
		log.Fatal(err)
	}
	columns, err := eng.StackDense(x, 1, y)
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range []tensor.Tensor{long, rows, columns} {
		fmt.Println(t.Shape(), t.Data())
	}
	// Output:
	// (4) [1 2 3 4]
	// (2, 2) [1 2 3 4]
	// (2, 2) [1 3 2 4]
}

// A bias for every row, and rows as often as wanted.
func ExampleEngine_Repeat() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	matrix := func(rows, cols int, values ...float64) *tensor.Dense {
		t, err := eng.FromHost(tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	show := func(t tensor.Tensor, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Shape(), t.Data())
	}

	bias := matrix(1, 2, 1, 2)
	show(eng.Repeat(bias, 0, 3)) // tensor.Repeat(bias, 0, 3): three times along axis 0
	rows := matrix(2, 2, 1, 2, 3, 4)
	show(eng.Repeat(rows, 0, 1, 2)) // the first once, the second twice
	into := matrix(3, 2, 0, 0, 0, 0, 0, 0)
	show(eng.RepeatReuse(rows, into, 0, 2, 1)) // into memory that is there
	// Output:
	// (3, 2) [1 2 1 2 1 2]
	// (3, 2) [1 2 3 4 3 4]
	// (3, 2) [1 2 1 2 3 4]
}

// An embedding: rows of a table by their indices, and the gradient by the table.
func ExampleEngine_SelectByIndices() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	matrix := func(rows, cols int, values ...float64) *tensor.Dense {
		t, err := eng.FromHost(tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(values)))
		if err != nil {
			log.Fatal(err)
		}
		return t
	}
	show := func(t tensor.Tensor, err error) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(t.Shape(), t.Data())
	}
	tokens, err := eng.FromHost(tensor.New(tensor.WithBacking([]int{2, 0, 2})))
	if err != nil {
		log.Fatal(err)
	}

	table := matrix(3, 2, 1, 2, 3, 4, 5, 6)
	show(eng.SelectByIndices(table, tokens, 0)) // tensor.ByIndices(table, tokens, 0)
	grad := matrix(3, 2, 1, 1, 10, 10, 100, 100)
	show(eng.SelectByIndicesB(table, grad, tokens, 0))
	// Output:
	// (3, 2) [5 6 1 2 5 6]
	// (3, 2) [10 10 0 0 101 101]
}

// The diagonal of a matrix is what the result begins with.
func ExampleEngine_Diag() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float32{1, 2, 3, 4})))
	if err != nil {
		log.Fatal(err)
	}

	d, err := eng.Diag(x) // tensor.Diag(x)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Shape(), d.Data())
	// Output:
	// (2, 2) [1 4 0 0]
}

// Anything else is computed by the CPU, on copies where it cannot touch the
// memory: here running sums.
func ExampleEngine_Compute() {
	pool, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	eng, err := cupool.NewEngine(pool)
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Scope().Close() // frees the tensors
	x, err := eng.FromHost(tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4})))
	if err != nil {
		log.Fatal(err)
	}

	sums, err := eng.Compute(func(ts []*tensor.Dense) (*tensor.Dense, error) {
		r := ts[0].Clone().(*tensor.Dense)
		for s, i := r.Float64s(), 1; i < len(s); i++ {
			s[i] += s[i-1]
		}
		return r, nil
	}, x)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sums, eng.Owns(sums))
	// Output:
	// [ 1   3   6  10] true
}
