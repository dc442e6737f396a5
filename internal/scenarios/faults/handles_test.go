package faults_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// nothing are handles that are nothing, by their type: nil ones, zero ones and those of
// nobody. Every other type has its zero value.
var nothing = map[reflect.Type][]any{
	reflect.TypeFor[*cupool.Pool]():            {(*cupool.Pool)(nil), new(cupool.Pool)},
	reflect.TypeFor[*cupool.Stream]():          {(*cupool.Stream)(nil), new(cupool.Stream)},
	reflect.TypeFor[*cupool.Event]():           {(*cupool.Event)(nil), new(cupool.Event)},
	reflect.TypeFor[*cupool.Buffer[float32]](): {(*cupool.Buffer[float32])(nil), new(cupool.Buffer[float32])},
	reflect.TypeFor[*cupool.Scope]():           {(*cupool.Scope)(nil), new(cupool.Scope)},
	reflect.TypeFor[*cupool.Graph]():           {(*cupool.Graph)(nil), new(cupool.Graph)},
	reflect.TypeFor[cupool.Block]():            {cupool.Block{}, cupool.NewMint().Block(1<<20, 512, 1, 1)},
}

var errorType = reflect.TypeFor[error]()

// TestHandlesOfNothing: no method panics whose receiver is nil or zero. One that returns an
// error fails, and the others answer with nothing.
func TestHandlesOfNothing(t *testing.T) {
	for typ, handles := range nothing {
		if typ.Kind() != reflect.Pointer {
			continue
		}
		for _, h := range handles {
			eachCall(t, reflect.ValueOf(h), func(name string, out []reflect.Value) {
				for _, x := range out {
					if x.Type() == errorType && x.IsNil() {
						t.Errorf("%s: no error", name)
					}
				}
			})
		}
	}
}

// TestArgumentsOfNothing: no method panics that is given nil or zero handles, functions and
// contexts.
func TestArgumentsOfNothing(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: pooltest.OpenHost(t), Backing: cupool.BackingVMM})
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	for _, make := range []func() any{
		func() any { return pooltest.NewPrivate(t, c, cupool.PoolConfig{}) },
		func() any { return pooltest.NewStream(t, c) },
		func() any { return testkit.Must(c.DefaultStream().Record()) },
		func() any { return testkit.Must(cupool.NewBuffer[float32](c, 10, nil)) },
		func() any { return e.Scope() },
	} {
		typ := reflect.TypeOf(make())
		for i := range typ.NumMethod() {
			eachCallOf(t, func() reflect.Value { return reflect.ValueOf(make()) }, i, func(string, []reflect.Value) {})
		}
	}
	var ctx context.Context // nil
	_, err = c.AllocContext(ctx, 100, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidHandle)
	require.ErrorIs(t, c.DefaultStream().SyncContext(ctx), cupool.ErrInvalidHandle)
}

// TestOverNoPool: what is made over a pool fails over none.
func TestOverNoPool(t *testing.T) {
	for _, a := range []cupool.Allocator{nil, (*cupool.Pool)(nil), new(cupool.Pool), new(cupool.Pool).WithLabel("x")} {
		_, err := cupool.NewEngine(a)
		require.Error(t, err)
		_, err = cupool.NewBuffer[int32](a, 10, nil)
		require.Error(t, err)
		_, err = cupool.BufferFrom(a, []int32{1}, nil)
		require.Error(t, err)
	}
}

func eachCall(t *testing.T, h reflect.Value, f func(name string, out []reflect.Value)) {
	for i := range h.NumMethod() {
		eachCallOf(t, func() reflect.Value { return h }, i, f)
	}
}

// eachCallOf calls a method of a handle with every mix of arguments that are nothing.
func eachCallOf(t *testing.T, h func() reflect.Value, i int, f func(name string, out []reflect.Value)) {
	recv := h()
	method := recv.Type().Method(i)
	m := method.Type
	for mix := range 4 {
		args := []reflect.Value{}
		name := fmt.Sprintf("%v.%s, zero %v", recv.Type(), method.Name, recv.IsNil())
		for j := 1; j < m.NumIn(); j++ {
			in := m.In(j)
			v := reflect.Zero(in)
			if some := nothing[in]; some != nil {
				v = reflect.ValueOf(some[(mix>>((j-1)%2))%2])
			}
			if m.IsVariadic() && j == m.NumIn()-1 {
				continue
			}
			args = append(args, v)
		}
		var out []reflect.Value
		p := pooltest.PanicOf(func() { out = recv.Method(i).Call(args) })
		if p != nil {
			t.Errorf("%s: panic: %v", name, p)
			return
		}
		f(name, out)
		recv = h()
	}
}
