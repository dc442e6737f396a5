package dist

import (
	"fmt"
	"reflect"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/nilptr"
	"github.com/cupool/cupool/internal/tensorop/operand"
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

// Memory is elements in device memory. Of and OfTensor make it; one that is put
// together by hand is inside a live block of the Comm's device. Ptr and Count may
// be set to a part of what Of and OfTensor took.
type Memory struct {
	Ptr   cupool.Ptr // of the first element
	Count int        // elements
	Type  Type

	owner owner
}

// An owner is the buffer or tensor that a Memory was made of.
type owner struct {
	ptr    cupool.Ptr
	size   int64
	record func(s *cupool.Stream) error // nil: a block of the stream's device is
}

// Of returns the elements of a Buffer. It fails with cupool.ErrInvalidHandle for
// none, with cupool.ErrUseAfterFree and, for elements that no Type is, with
// cupool.ErrNotSupported.
func Of[T any](b *cupool.Buffer[T]) (Memory, error) {
	t, ok := types[reflect.TypeFor[T]().Kind()]
	if !ok {
		return Memory{}, fmt.Errorf("dist: elements of %v: %w", reflect.TypeFor[T](), cupool.ErrNotSupported)
	}
	if _, err := b.View(0, 0); err != nil {
		return Memory{}, err
	}
	record := func(s *cupool.Stream) error {
		_, err := b.On(s)
		return err
	}
	return Memory{b.Ptr(), b.Len(), t, owner{b.Ptr(), b.Bytes(), record}}, nil
}

// OfTensor returns the elements of a tensor whose engine is a cupool.Engine. It
// fails with cupool.ErrInvalidHandle for no tensor, with cupool.ErrForeignPointer
// for one of another engine, with cupool.ErrUseAfterFree, and with cupool.ErrNotSupported
// for one whose elements no Type is, or do not lie one after the other.
func OfTensor(t tensor.Tensor) (Memory, error) {
	if nilptr.Is(t) {
		return Memory{}, fmt.Errorf("dist: no tensor: %w", cupool.ErrInvalidHandle)
	}
	eng := cupool.EngineOf(t)
	if eng == nil {
		return Memory{}, fmt.Errorf("dist: %v tensor of %v: %w: its engine is no cupool.Engine", t.Shape(), t.Dtype(), cupool.ErrForeignPointer)
	}
	if d, ok := t.(*tensor.Dense); ok && operand.IsFreed(d) {
		return Memory{}, fmt.Errorf("dist: %v tensor of %v: %w", t.Shape(), t.Dtype(), cupool.ErrUseAfterFree)
	}
	kind, ok := types[t.Dtype().Kind()]
	if !ok || t.RequiresIterator() {
		return Memory{}, fmt.Errorf("dist: %v tensor of %v, strides %v: %w", t.Shape(), t.Dtype(), t.Strides(), cupool.ErrNotSupported)
	}
	p, size := cupool.Ptr(t.Uintptr()), int64(t.MemSize()) // DataSize of one element is 0
	record := func(s *cupool.Stream) error {
		defer operand.KeepAlive(t) // the Memory keeps it: the collector may give it back
		b, err := eng.Allocator().Lookup(p)
		if err != nil {
			return err
		}
		return eng.Allocator().RecordStream(b, s)
	}
	return Memory{p, int(size / kind.Size()), kind, owner{p, size, record}}, nil
}

// Bytes returns the size in bytes.
func (m Memory) Bytes() int64 { return int64(m.Count) * m.Type.Size() }

// Record keeps the memory, when it is freed, until the work that s has by then
// is done. Implementations of Comm call it. It fails with cupool.ErrInvalidRange
// for elements that are not all inside the buffer, tensor or block, and for memory
// that is freed or of another device as RecordStream of an Allocator does, and with
// cupool.ErrInvalidHandle for no stream. No elements are no memory.
func (m Memory) Record(s *cupool.Stream) error {
	if m.Count == 0 {
		return nil
	}
	if s.Pool() == nil {
		return fmt.Errorf("dist: recording %d %v elements on no stream: %w", m.Count, m.Type, cupool.ErrInvalidHandle)
	}
	in := m.owner
	if in.record == nil {
		b, err := s.Pool().Lookup(m.Ptr)
		if err != nil {
			return err
		}
		in = owner{b.Ptr(), b.Size(), func(s *cupool.Stream) error { return s.Pool().RecordStream(b, s) }}
	}
	at, size := uint64(m.Ptr-in.ptr), uint64(in.size) // an address before it is far behind it
	if m.Count < 0 || at > size || uint64(m.Count) > (size-at)/uint64(m.Type.Size()) {
		return fmt.Errorf("dist: %d %v elements at %#x are not inside their %d bytes at %#x: %w", m.Count, m.Type, uintptr(m.Ptr), in.size, uintptr(in.ptr), cupool.ErrInvalidRange)
	}
	return in.record(s)
}
