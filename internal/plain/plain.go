// Package plain is about values that can live outside Go's heap: they are of a
// fixed size and hold no Go pointers.
package plain

import (
	"bytes"
	"reflect"
	"unsafe"
)

// Is reports whether values of a type are plain.
func Is(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return true
	case reflect.Array:
		return Is(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !Is(t.Field(i).Type) {
				return false
			}
		}
		return true
	default: // uintptr too: it is an address more often than a number
		return false
	}
}

// Size returns the bytes of a value of type T.
func Size[T any]() int64 { return int64(reflect.TypeFor[T]().Size()) }

// Bytes returns the memory of a slice of plain elements, not a copy of it.
func Bytes[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), int64(len(s))*Size[T]())
}

// Pattern returns a copy of the bytes of one plain value.
func Pattern(v reflect.Value) []byte {
	box := reflect.New(v.Type())
	box.Elem().Set(v)
	return bytes.Clone(unsafe.Slice((*byte)(box.UnsafePointer()), v.Type().Size()))
}
