// Package handletest calls methods of handles that are nothing, and with arguments that
// are: nil ones, zero ones, and those of nobody.
package handletest

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// nothing are handles that are nothing, by their type. Every other type has its zero value.
var nothing = map[reflect.Type][2]any{
	reflect.TypeFor[*cupool.Pool]():            {(*cupool.Pool)(nil), new(cupool.Pool)},
	reflect.TypeFor[*cupool.Stream]():          {(*cupool.Stream)(nil), new(cupool.Stream)},
	reflect.TypeFor[*cupool.Event]():           {(*cupool.Event)(nil), new(cupool.Event)},
	reflect.TypeFor[*cupool.Buffer[float32]](): {(*cupool.Buffer[float32])(nil), new(cupool.Buffer[float32])},
	reflect.TypeFor[*cupool.Scope]():           {(*cupool.Scope)(nil), new(cupool.Scope)},
	reflect.TypeFor[*cupool.Graph]():           {(*cupool.Graph)(nil), new(cupool.Graph)},
	reflect.TypeFor[cupool.Block]():            {cupool.Block{}, cupool.NewMint().Block(1<<20, 512, 1, 1)},
}

var errorType = reflect.TypeFor[error]()

// Handles returns the handles of package cupool that are nothing.
func Handles() (all []any) {
	for typ, handles := range nothing {
		if typ.Kind() == reflect.Pointer {
			all = append(all, handles[:]...)
		}
	}
	return all
}

// Receivers calls every method of handles that are nothing. None panics. One that
// returns an error fails with cupool.ErrInvalidHandle, or with cupool.ErrClosed.
func Receivers(t *testing.T, handles ...any) {
	t.Helper()
	for _, h := range handles {
		h := reflect.ValueOf(h)
		each(t, func() reflect.Value { return h }, func(name string, out []reflect.Value) {
			for _, x := range out {
				if x.Type() != errorType {
					continue
				}
				if err, _ := x.Interface().(error); !errors.Is(err, cupool.ErrInvalidHandle) && !errors.Is(err, cupool.ErrClosed) {
					t.Errorf("%s: error %v", name, err)
				}
			}
		})
	}
}

// Arguments calls every method of what make makes, each of a new one, with arguments
// that are nothing. None panics.
func Arguments(t *testing.T, make func() any) {
	t.Helper()
	each(t, func() reflect.Value { return reflect.ValueOf(make()) }, func(string, []reflect.Value) {})
}

// each calls every method of a handle with every mix of arguments that are nothing.
func each(t *testing.T, h func() reflect.Value, f func(name string, out []reflect.Value)) {
	t.Helper()
	typ := h().Type()
	for i := range typ.NumMethod() {
		method := typ.Method(i)
		for mix := range 4 {
			recv := h()
			name := fmt.Sprintf("%v.%s, nil %v, mix %d", typ, method.Name, recv.IsNil(), mix)
			var out []reflect.Value
			if p := pooltest.PanicOf(func() { out = recv.Method(i).Call(arguments(method.Type, mix)) }); p != nil {
				t.Errorf("%s: panic: %v", name, p)
				continue
			}
			f(name, out)
		}
	}
}

// arguments are a mix of those of a method, without the variadic ones.
func arguments(m reflect.Type, mix int) (args []reflect.Value) {
	for j := 1; j < m.NumIn(); j++ {
		if m.IsVariadic() && j == m.NumIn()-1 {
			break
		}
		in := m.In(j)
		v := reflect.Zero(in)
		if some, ok := nothing[in]; ok {
			v = reflect.ValueOf(some[(mix>>((j-1)%2))%2])
		}
		args = append(args, v)
	}
	return args
}
