// Package handletest calls methods of handles that are nothing, and methods and
// functions with arguments that are: nil ones, zero ones, and those of nobody.
package handletest

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// nothing are arguments that are nothing, by their type. Every other type has its zero value.
var nothing = map[reflect.Type][2]any{
	reflect.TypeFor[*cupool.Pool]():            {(*cupool.Pool)(nil), new(cupool.Pool)},
	reflect.TypeFor[*cupool.Stream]():          {(*cupool.Stream)(nil), new(cupool.Stream)},
	reflect.TypeFor[*cupool.Event]():           {(*cupool.Event)(nil), new(cupool.Event)},
	reflect.TypeFor[*cupool.Engine]():          {(*cupool.Engine)(nil), new(cupool.Engine)},
	reflect.TypeFor[*cupool.Buffer[float32]](): {(*cupool.Buffer[float32])(nil), new(cupool.Buffer[float32])},
	reflect.TypeFor[cupool.Block]():            {cupool.Block{}, cupool.NewMint().Block(1<<20, 512, 1, 1)},
}

// unreadable is what no phrase has: a preposition without what it is of, two in a row,
// a value that is not there, one byte in the plural, and what fmt prints of a mistake.
var unreadable = regexp.MustCompile(`\b(of|to|from|for|on|at|in|by) ?(:|$|\))|\b(of|to|from|for|at|by) (of|to|from|for|on|at|by)\b|\b0x0\b|<nil>|\(0 bytes\)|[^-\d]1 bytes\b|%!|  |: :|:$| = :`)

// Readable checks that the text of an error can be read aloud, and says whose it is.
func Readable(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) { // joined errors have one each
		if !strings.HasPrefix(line, "\t") && !begin.MatchString(line) || unreadable.MatchString(strings.TrimRight(line, "\n")) {
			t.Errorf("who can read this? %q", line)
		}
	}
}

var begin = regexp.MustCompile(`^(\w[\w ]*: |open )\S`) // os names its files

var errorType = reflect.TypeFor[error]()

// Receivers calls every method of handles that are nothing. None panics, but with a
// *cupool.EngineError around cupool.ErrInvalidHandle where it returns nothing. One that
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

// Function calls a function with arguments that are nothing, and closes what it returns.
// It does not panic.
func Function(t *testing.T, name string, f any) {
	t.Helper()
	v := reflect.ValueOf(f)
	for mix := range 4 {
		for _, rest := range []int{0, 1} {
			out, ok := call(t, fmt.Sprintf("%s, mix %d, %d more", name, mix, rest), v, arguments(v.Type(), 0, mix, rest))
			if !ok {
				continue
			}
			for _, x := range out {
				if c, ok := x.Interface().(interface{ Close() error }); ok && !x.IsZero() {
					if err := c.Close(); err != nil {
						t.Errorf("%s: close: %v", name, err)
					}
				}
			}
		}
	}
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
			if out, ok := call(t, name, recv.Method(i), arguments(method.Type, 1, mix, 0)); ok {
				f(name, out)
			}
		}
	}
}

// call calls what must not panic, and whose error can be read.
func call(t *testing.T, name string, f reflect.Value, args []reflect.Value) (out []reflect.Value, ok bool) {
	t.Helper()
	if p := pooltest.PanicOf(func() { out = f.Call(args) }); p != nil {
		err, _ := p.(error)
		var typed *cupool.EngineError
		if f.Type().NumOut() > 0 || !errors.As(err, &typed) || !errors.Is(err, cupool.ErrInvalidHandle) {
			t.Errorf("%s: panic: %v", name, p)
		}
		return nil, false
	}
	for _, x := range out {
		if err, ok := x.Interface().(error); ok && x.Type() == errorType && !strings.Contains(name, ".Unwrap,") {
			Readable(t, err.Error())
		}
	}
	return out, true
}

// arguments are a mix of those of a function behind the first few, with rest variadic ones.
func arguments(f reflect.Type, first, mix, rest int) (args []reflect.Value) {
	of := func(in reflect.Type, j int) reflect.Value {
		if some, ok := nothing[in]; ok {
			return reflect.ValueOf(some[(mix>>(j%2))%2])
		}
		return reflect.Zero(in)
	}
	for j := first; j < f.NumIn(); j++ {
		in := f.In(j)
		if !f.IsVariadic() || j < f.NumIn()-1 {
			args = append(args, of(in, j-first))
			continue
		}
		for range rest {
			args = append(args, of(in.Elem(), j-first))
		}
	}
	return args
}
