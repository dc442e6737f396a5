// Package operand says where the data of tensors lie and how they are laid out.
// It changes no elements.
package operand

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/cupool/cupool/device"
)

// Extent returns the address and the size in bytes of memory. Empty memory has
// no address: asking a tensor for it would panic.
func Extent(mem tensor.Memory) (device.Ptr, int64) {
	if m, ok := mem.(*Memory); ok { // what is asked for most, without three calls
		return m.Ptr, m.Size
	}
	if IsNil(mem) || mem.MemSize() == 0 {
		return 0, 0
	}
	return device.Ptr(mem.Uintptr()), int64(mem.MemSize())
}

// IsNil reports whether there is no memory, not even an empty one. tensor
// returns nil pointers inside interfaces along with errors. The zero Dense, whose
// methods panic, is no tensor either.
func IsNil(mem tensor.Memory) bool {
	d, ok := mem.(*tensor.Dense)
	return mem == nil || ok && (d == nil || d.Dtype().Type == nil)
}

// IsFreed reports whether mem is a tensor whose data was freed
// (Disarm).
func IsFreed(mem tensor.Memory) bool {
	d, ok := mem.(*tensor.Dense)
	return ok && d != nil && d.MemSize() == 0 && d.Shape().TotalSize() != 0
}

// SizeOf returns the bytes of a tensor. ok is false for a shape that no tensor has.
func SizeOf(dt tensor.Dtype, shape tensor.Shape) (n int64, ok bool) {
	n = int64(dt.Size())
	for _, d := range shape {
		if d < 0 || d > 0 && n > math.MaxInt64/int64(d) {
			return 0, false
		}
		n *= int64(d)
	}
	return n, true
}

// Pattern returns the bytes of val, an element of mem where that is a tensor. It
// fails with ErrNotSupported for a type that is not fixed-size data, and with
// ErrSizeMismatch for another one than mem's.
func Pattern(mem tensor.Memory, val interface{}) ([]byte, error) {
	v := reflect.ValueOf(val)
	if !v.IsValid() {
		return nil, fmt.Errorf("no value: %w", device.ErrNotSupported)
	}
	if !IsPlain(v.Type()) || v.Type().Size() == 0 {
		return nil, fmt.Errorf("a value of type %T: %w", val, device.ErrNotSupported)
	}
	if t, ok := mem.(tensor.Dtyper); ok && !IsNil(mem) && t.Dtype().Type != v.Type() {
		return nil, fmt.Errorf("a value of type %T for elements of type %v: %w", val, t.Dtype(), device.ErrSizeMismatch)
	}
	return pattern(v), nil
}

// IsFloat reports whether elements are float32 or float64.
func IsFloat(dt tensor.Dtype) bool {
	return dt.Kind() == reflect.Float32 || dt.Kind() == reflect.Float64
}

// IsContiguous reports whether t is laid out as a new tensor is and has more
// than one element. Then StdEng does the same to a new tensor as it does to one
// that it is told to reuse.
func IsContiguous(t tensor.Tensor) bool {
	d, ok := t.(*tensor.Dense)
	return ok && d.DataOrder() == 0 && !d.RequiresIterator() && d.MemSize() > d.Dtype().Size()
}

// Apart reports whether dst shares no memory with any of ts.
func Apart(dst tensor.Tensor, ts []tensor.Tensor) bool {
	p, n := Extent(dst)
	return !slices.ContainsFunc(ts, func(t tensor.Tensor) bool {
		q, m := Extent(t)
		return p < q+device.Ptr(m) && q < p+device.Ptr(n)
	})
}

// Bytes returns the memory at p as n bytes. p may be outside Go's heap or
// inside it. In the latter case the caller keeps the object alive.
func Bytes(p device.Ptr, n int64) []byte { return slice[byte](p, int(n)) }

// Slice returns the elements of a host tensor in memory order. It returns nil
// where the tensor is nil or empty, or has elements of another type. The caller
// keeps the tensor alive.
func Slice[T any](d *tensor.Dense) []T {
	if d == nil || d.MemSize() == 0 || d.Dtype().Type != reflect.TypeFor[T]() {
		return nil
	}
	return Elements[T](d)
}

// Elements is Slice for a tensor that has elements, which a T has the size of.
func Elements[T any](d *tensor.Dense) []T {
	p, n := Extent(d)
	return slice[T](p, int(n)/int(d.Dtype().Size()))
}

// slice puts a slice together in memory, because a conversion from uintptr
// would claim that p is a pointer that Go knows.
func slice[T any](p device.Ptr, n int) []T {
	header := struct {
		p        device.Ptr
		len, cap int
	}{p, n, n}
	return *(*[]T)(unsafe.Pointer(&header))
}

// KeepAlive ends the time for which tensors have to be there. Code that works
// on their addresses alone does not keep them.
//
//go:noinline
func KeepAlive[T any](...T) {}
