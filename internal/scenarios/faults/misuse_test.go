package faults_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hook"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// Tests of what comes of nil, of values that no function of the package made,
// and of streams that are closed while they are used.

// TestNilArguments: nil where the package's own values belong is an error, or
// the default stream, in every call that returns errors.
func TestNilArguments(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: simdev.New(simdev.Config{})})
	s := pooltest.NewStream(t, c)
	b := pooltest.Alloc(t, c, 1000, s)
	buf, err := cupool.NewBuffer[int32](c, 4, s)
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		call func() error
		ok   bool // nil is the default stream there
	}{
		"Stream.Wait": {func() error { return s.Wait(nil) }, false},
		"zero Stream": {func() error {
			zero := &cupool.Stream{}
			for name, err := range map[string]error{
				"Alloc": testkit.Second(c.Alloc(1, zero)), "Alloc of nothing": testkit.Second(c.Alloc(0, zero)), "Reserve": c.Reserve(1, zero),
				"RecordStream": c.RecordStream(b, zero), "FreeOn": c.FreeOn(b, zero), "On": testkit.Second(buf.On(zero)),
				"NewBuffer": testkit.Second(cupool.NewBuffer[int32](c, 1, zero)), "NewEngine": testkit.Second(cupool.NewEngine(c, cupool.WithStream(zero))),
			} {
				require.ErrorIs(t, err, cupool.ErrForeignStream, name)
			}
			return s.WaitStream(zero)
		}, false},
		"Stream.WaitStream": {func() error { return s.WaitStream(nil) }, true},
		"Stream.Launch":     {func() error { return s.Launch(nil) }, false},
		"Pool.RecordStream": {func() error { return c.RecordStream(b, nil) }, true},
		"Pool.Alloc": {func() error {
			x, err := c.Alloc(1, nil)
			return errors.Join(err, c.Free(x))
		}, true},
		"Pool.FreeOn": {func() error {
			x, err := c.Alloc(1, s)
			return errors.Join(err, c.FreeOn(x, nil))
		}, true},
		"Buffer.On":         {func() error { return testkit.Second(buf.On(nil)) }, true},
		"Buffer.CopyBuffer": {func() error { return buf.CopyBuffer(nil) }, false},
		"NewBuffer": {func() error {
			x, err := cupool.NewBuffer[int32](c, 1, nil)
			if err != nil {
				return err
			}
			return x.Free()
		}, true},
		"NewBuffer, allocator":  {func() error { return testkit.Second(cupool.NewBuffer[int32](nil, 1, nil)) }, false},
		"BufferFrom, allocator": {func() error { return testkit.Second(cupool.BufferFrom[int32](nil, []int32{1}, nil)) }, false},
		"NewBuffer, nil *Pool":  {func() error { return testkit.Second(cupool.NewBuffer[int32]((*cupool.Pool)(nil), 1, nil)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			require.Nil(t, pooltest.PanicOf(func() { err = tc.call() }))
			if !tc.ok {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
			}
		})
	}
	require.NoError(t, errors.Join(c.Free(b), buf.Free()))
	require.NoError(t, c.Check())
	require.NoError(t, c.Close())
}

// TestZeroValues: the methods of a zero value, and of a nil pointer, of the types
// that only the package makes return an error where they return one. Those of Pool
// panic, as its comment says.
func TestZeroValues(t *testing.T) {
	require.Empty(t, callAll(reflect.TypeFor[cupool.Stream]()))
	require.Empty(t, callAll(reflect.TypeFor[cupool.Event]()))
	require.Empty(t, callAll(reflect.TypeFor[cupool.Buffer[int32]]()))
}

// callAll calls every method that returns an error, of the zero value of a type
// and of a nil pointer to it, with simple arguments, and tells of each what was
// wrong with what it did. Each call has a value of its own, as one that panics may
// leave it locked.
func callAll(typ reflect.Type) map[string]string {
	out := map[string]string{}
	pointer := reflect.PointerTo(typ)
	for i := range pointer.NumMethod() {
		m := pointer.Method(i)
		n := m.Type.NumOut()
		if n == 0 || m.Type.Out(n-1) != reflect.TypeFor[error]() {
			continue
		}
		in, mistake := simpleArguments(m)
		if !mistake {
			continue
		}
		for of, v := range map[string]reflect.Value{"the zero value": reflect.New(typ), "nil": reflect.Zero(pointer)} {
			var result []reflect.Value
			if p := pooltest.PanicOf(func() { result = m.Func.Call(append([]reflect.Value{v}, in...)) }); p != nil {
				out[m.Name+" of "+of] = fmt.Sprintf("panics: %v", p)
			} else if result[n-1].IsNil() {
				out[m.Name+" of "+of] = "returns no error"
			}
		}
	}
	return out
}

// simpleArguments returns zeros for a method's arguments, 1 for sizes. It returns
// false where a call with the empty Block is no mistake.
func simpleArguments(m reflect.Method) (in []reflect.Value, mistake bool) {
	n := m.Type.NumIn()
	if m.Type.IsVariadic() {
		n--
	}
	for j := 1; j < n; j++ {
		if m.Type.In(j) == reflect.TypeFor[cupool.Block]() {
			return nil, false
		}
		arg := reflect.New(m.Type.In(j)).Elem()
		if arg.CanInt() {
			arg.SetInt(1) // 0 bytes are no mistake
		}
		in = append(in, arg)
	}
	return in, true
}

// TestStreamClosedMeanwhile: a stream that another goroutine closes, between the
// moment in which a call finds it open and the moment in which the device is
// asked, makes the call fail with ErrClosed, or the Close waits for the call.
func TestStreamClosedMeanwhile(t *testing.T) {
	type program struct {
		c      *cupool.Pool
		s      *cupool.Stream // is closed
		b      cupool.Block   // of the default stream
		marked *cupool.Event  // of the default stream
	}
	for name, call := range map[string]func(p program) error{
		"Record": func(p program) error {
			e, err := p.s.Record()
			if err == nil {
				err = e.Close()
			}
			return err
		},
		"Sync":                  func(p program) error { return p.s.Sync() },
		"Wait":                  func(p program) error { return p.s.Wait(p.marked) },
		"WaitStream":            func(p program) error { return p.s.WaitStream(p.c.DefaultStream()) },
		"WaitStream of another": func(p program) error { return p.c.DefaultStream().WaitStream(p.s) },
		"Launch":                func(p program) error { return p.s.Launch(func() {}) },
		"Copy":                  func(p program) error { return p.s.Copy(p.b.Ptr(), p.b.Ptr()+512, 512) },
		"CopyIn":                func(p program) error { return p.s.CopyIn(p.b.Ptr(), make([]byte, 8)) },
		"CopyOut":               func(p program) error { return p.s.CopyOut(make([]byte, 8), p.b.Ptr()) },
		"Memset":                func(p program) error { return p.s.Memset(p.b.Ptr(), 1, 8) },
		"FreeOn": func(p program) error {
			b, err := p.c.Alloc(4<<20, nil)
			return errors.Join(err, p.c.FreeOn(b, p.s))
		},
		"Trim": func(p program) error { // asks how far the stream is
			b, err := p.c.Alloc(4<<20, nil)
			err = errors.Join(err, p.c.FreeOn(b, p.s))
			_, e := p.c.Trim(0)
			return errors.Join(err, e)
		},
		"EmptyCache": func(p program) error {
			b, err := p.c.Alloc(4<<20, nil)
			return errors.Join(err, p.c.FreeOn(b, p.s), p.c.EmptyCache())
		},
		"Close of a pool": func(p program) error {
			pool, err := p.c.NewPool(cupool.PoolConfig{})
			if err != nil {
				return err
			}
			b, err := pool.Alloc(4<<20, p.s)
			return errors.Join(err, pool.Free(b), pool.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			var before func() // the device is asked for something on a stream
			d := &hook.Driver{Driver: simdev.New(simdev.Config{}), Around: func(c *hook.Call, do func() error) error {
				if f := before; f != nil && c.Stream != 0 {
					before = nil
					f()
				}
				return do()
			}}
			c := pooltest.Open(t, cupool.Config{Driver: d})
			s := pooltest.NewStream(t, c)
			e, err := c.DefaultStream().Record()
			require.NoError(t, err)
			p := program{c, s, pooltest.Alloc(t, c, 1<<20, nil), e}
			closed := make(<-chan error)
			before = func() {
				closed = pooltest.Start(s.Close)
				done := make(chan error, 1)
				select {
				case err := <-closed:
					done <- err
				case <-time.After(pooltest.Patience): // Close waits for the call, as it may
					go func(closed <-chan error) { done <- <-closed }(closed)
				}
				closed = done
			}
			called := pooltest.Start(func() error { return call(p) })
			select {
			case err = <-called:
			case <-time.After(testkit.Patience):
				require.FailNow(t, "the call and Close wait for each other")
			}
			require.Nil(t, before, "the device was not asked")
			require.NoError(t, pooltest.Ignore(err, cupool.ErrClosed))
			require.NoError(t, <-closed)
			require.NoError(t, errors.Join(e.Close(), c.Free(p.b)))
			require.NoError(t, c.Check())
			require.NoError(t, c.Close())
			require.NoError(t, d.Close())
		})
	}
}
