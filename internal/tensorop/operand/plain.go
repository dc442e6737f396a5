package operand

import (
	"bytes"
	"reflect"
	"unsafe"
)

// IsPlain reports whether values of a type can live outside Go's heap: they are of a
// fixed size and hold no Go pointers.
func IsPlain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return true
	case reflect.Array:
		return IsPlain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !IsPlain(t.Field(i).Type) {
				return false
			}
		}
		return true
	default: // uintptr too: it is an address more often than a number
		return false
	}
}

// PlainSize returns the bytes of a value of type T.
func PlainSize[T any]() int64 { return int64(reflect.TypeFor[T]().Size()) }

// PlainBytes returns the memory of a slice of plain elements, not a copy of it.
func PlainBytes[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), int64(len(s))*PlainSize[T]())
}

// pattern returns a copy of the bytes of one plain value.
func pattern(v reflect.Value) []byte {
	box := reflect.New(v.Type())
	box.Elem().Set(v)
	return bytes.Clone(unsafe.Slice((*byte)(box.UnsafePointer()), v.Type().Size()))
}
