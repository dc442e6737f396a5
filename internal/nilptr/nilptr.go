// Package nilptr finds nil pointers in interfaces.
package nilptr

import "reflect"

// Is reports whether x is nil, or holds a nil pointer.
func Is(x any) bool {
	v := reflect.ValueOf(x)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
