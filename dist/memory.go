package dist

import (
	"fmt"
	"reflect"

	"github.com/cupool/cupool"
	"gorgonia.org/tensor"
)

// Type is the type of elements.
type Type int

// The types.
const (
	Float32 Type = iota + 1
	Float64
	Int32
	Int64
	Uint8
)

var types = map[reflect.Kind]Type{
	reflect.Float32: Float32, reflect.Float64: Float64, reflect.Int32: Int32, reflect.Int64: Int64, reflect.Int: Int64, reflect.Uint8: Uint8,
}

// String returns the name: float32, float64, int32, int64 or uint8.
func (t Type) String() string {
	for kind, o := range types {
		if o == t && kind != reflect.Int {
			return kind.String()
		}
	}
	return fmt.Sprintf("Type(%d)", int(t))
}

// Size returns the size of an element in bytes.
func (t Type) Size() int64 {
	switch t {
	case Float64, Int64:
		return 8
	case Uint8:
		return 1
	}
	return 4
}

// Op is how the elements of several ranks become one.
type Op int

// The operations.
const (
	Sum Op = iota
	Prod
	Min
	Max
	Avg // the sum, divided by the number of ranks; of floating-point numbers only
)

// String returns the name: sum, prod, min, max or avg.
func (op Op) String() string {
	if names := [...]string{"sum", "prod", "min", "max", "avg"}; op >= 0 && int(op) < len(names) {
		return names[op]
	}
	return fmt.Sprintf("Op(%d)", int(op))
}

// Memory is elements in device memory. Of and OfTensor make it.
type Memory struct {
	Ptr   cupool.Ptr // of the first element
	Count int        // elements
	Type  Type

	record func(s *cupool.Stream) error
}

// Of returns the elements of a Buffer. It fails with cupool.ErrUseAfterFree and,
// for elements that no Type is, with cupool.ErrNotSupported.
func Of[T any](b *cupool.Buffer[T]) (Memory, error) {
	t, ok := types[reflect.TypeFor[T]().Kind()]
	if !ok {
		return Memory{}, fmt.Errorf("dist: elements of %v: %w", reflect.TypeFor[T](), cupool.ErrNotSupported)
	}
	m := Memory{Ptr: b.Ptr(), Count: b.Len(), Type: t}
	m.record = func(s *cupool.Stream) error {
		_, err := b.On(s)
		return err
	}
	return m, nil
}

// OfTensor returns the elements of a tensor whose engine is a cupool.Engine. It
// fails with cupool.ErrForeignPointer for any other tensor, and with
// cupool.ErrNotSupported for one whose elements no Type is, or do not lie one
// after the other.
func OfTensor(t tensor.Tensor) (Memory, error) {
	eng := cupool.EngineOf(t)
	if eng == nil {
		return Memory{}, fmt.Errorf("dist: %v tensor of %v: %w: its engine is no cupool.Engine", t.Shape(), t.Dtype(), cupool.ErrForeignPointer)
	}
	kind, ok := types[t.Dtype().Kind()]
	if !ok || t.RequiresIterator() {
		return Memory{}, fmt.Errorf("dist: %v tensor of %v, strides %v: %w", t.Shape(), t.Dtype(), t.Strides(), cupool.ErrNotSupported)
	}
	p := cupool.Ptr(t.Uintptr())
	m := Memory{Ptr: p, Count: int(int64(t.MemSize()) / kind.Size()), Type: kind} // DataSize of one element is 0
	m.record = func(s *cupool.Stream) error {
		b, err := eng.Allocator().Lookup(p)
		if err != nil {
			return err
		}
		return eng.Allocator().RecordStream(b, s)
	}
	return m, nil
}

// Bytes returns the size in bytes.
func (m Memory) Bytes() int64 { return int64(m.Count) * m.Type.Size() }

// Record keeps the memory, when it is freed, until the work that s has by then
// is done. Implementations of Comm call it.
func (m Memory) Record(s *cupool.Stream) error {
	if m.record == nil {
		return nil
	}
	return m.record(s)
}
