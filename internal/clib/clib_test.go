package clib_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/clib"
)

// library builds and opens testdata/lib.c, and returns its symbols. CLIB_LIBRARY is
// where it has been built already, for emulators of other systems.
func library(t testing.TB) (find func(string) uintptr, s clib.Scope) {
	t.Helper()
	path := os.Getenv("CLIB_LIBRARY")
	if path == "" {
		cc, err := exec.LookPath("cc")
		if err != nil || runtime.GOOS != "linux" {
			t.Skip("no C compiler here")
		}
		path = filepath.Join(t.TempDir(), "lib.so")
		out, err := exec.Command(cc, "-O1", "-shared", "-fPIC", "-o", path, "testdata/lib.c").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	l, err := clib.Open(path)
	require.NoError(t, err)
	find = func(name string) uintptr {
		p := l.Find(name)
		require.NotZero(t, p, name)
		return p
	}
	return find, clib.Scope{Get: find("get_context"), Set: find("set_context")}
}

func TestOpen(t *testing.T) {
	_, err := clib.Open("/no/such/library.so")
	require.ErrorContains(t, err, "/no/such/library.so")
	find, _ := library(t)
	assert.Equal(t, "a text", clib.GoString(clib.Call(find("text"))))
	assert.Empty(t, clib.GoString(0))
}

func TestFind(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("libc.so.6 is Linux'")
	}
	l, err := clib.Open("libc.so.6")
	require.NoError(t, err)
	assert.NotZero(t, l.Find("strlen"))
	assert.Zero(t, l.Find("no_such_symbol"))
	s := clib.String("four")
	assert.EqualValues(t, 4, clib.Call(l.Find("strlen"), uintptr(unsafe.Pointer(s))))
}

// Arguments of both sizes arrive, in registers and on the stack.
func TestArguments(t *testing.T) {
	find, _ := library(t)
	s := clib.Step{Fn: find("many"), N: clib.MaxArgs, Ignore: true}
	want := int64(0)
	for i := range clib.MaxArgs {
		v := int64(i*i - 50)
		if i%2 == 1 {
			v *= 1 << 40
		}
		s.Args[i] = uintptr(v)
		want += int64(i+1) * v
	}
	steps := []clib.Step{s}
	err, entered := clib.Scope{}.Run(0, 0, steps...)
	require.True(t, entered)
	require.Zero(t, err)
	assert.Equal(t, want, int64(steps[0].Result))
}

func TestBytes(t *testing.T) {
	find, _ := library(t)
	b := make([]byte, 64)
	for i := range unsafe.Slice((*int64)(unsafe.Pointer(&b[0])), 8) {
		unsafe.Slice((*int64)(unsafe.Pointer(&b[0])), 8)[i] = int64(i) << 33
	}
	s := clib.Step{Fn: find("by_value"), N: 1}
	s.Out(0, 0)
	next := s.Bytes(1, b)
	s.Args[next] = 3
	s.N = max(s.N, next+1)
	steps := []clib.Step{s}
	_, _ = clib.Scope{}.Run(0, 0, steps...)
	runtime.KeepAlive(b)
	want := int64(0)
	for i := range int64(8) {
		want += 3 * (i + 1) * i << 33
	}
	assert.Equal(t, want, int64(steps[0].Value(0)))
}

func TestOut(t *testing.T) {
	find, _ := library(t)
	s := clib.Step{Fn: find("two"), N: 3}
	s.Args[1] = 1 << 40
	s.Out(0, 0)
	s.Out(2, 1)
	steps := []clib.Step{s}
	_, _ = clib.Scope{}.Run(0, 0, steps...)
	assert.EqualValues(t, 1<<40+1, steps[0].Value(0))
	assert.EqualValues(t, 2, steps[0].Value(1))
}

func TestRun(t *testing.T) {
	find, scope := library(t)
	add, code := find("add"), find("code")
	digit := func(d uintptr) clib.Step { return clib.StepOf(add, d) }
	with := func(s clib.Step, change func(*clib.Step)) clib.Step { change(&s); return s }
	always := func(s *clib.Step) { s.Always = true }
	ignore := func(s *clib.Step) { s.Ignore = true }
	for name, c := range map[string]struct {
		steps []clib.Step
		ok    int32
		err   int32
		order int32
	}{
		"none":                    {nil, 0, 0, 0},
		"in order":                {[]clib.Step{digit(1), digit(2), digit(3)}, 0, 0, 123},
		"the first failure":       {[]clib.Step{digit(1), clib.StepOf(code, 5), clib.StepOf(code, 6), digit(2)}, 0, 5, 1},
		"always":                  {[]clib.Step{clib.StepOf(code, 5), digit(1), with(digit(2), always), digit(3)}, 0, 5, 2},
		"a failure after another": {[]clib.Step{clib.StepOf(code, 5), with(clib.StepOf(code, 6), always), with(digit(2), always)}, 0, 5, 2},
		"a failure at last":       {[]clib.Step{digit(1), with(clib.StepOf(code, 6), always)}, 0, 6, 1},
		"ignored":                 {[]clib.Step{with(clib.StepOf(code, 5), ignore), digit(1)}, 0, 0, 1},
		"another good result":     {[]clib.Step{clib.StepOf(code, 7), digit(1)}, 7, 0, 1},
		"negative":                {[]clib.Step{clib.StepOf(code, ^uintptr(1)), digit(1)}, 0, -2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			err, entered := scope.Run(7, c.ok, c.steps...)
			assert.True(t, entered)
			assert.Equal(t, c.err, err)
			assert.Equal(t, c.order, int32(clib.Call(find("take_order"))))
		})
	}
}

// The context is set for the calls, and the thread has its own afterwards.
func TestContext(t *testing.T) {
	find, scope := library(t)
	runtime.LockOSThread() // the thread is thrown away: it keeps a context
	is := find("context_is")
	sets := func() int { return int(int32(clib.Call(find("count_sets")))) }
	none := clib.Scope{}
	in := func(ctx, want uintptr) int32 {
		err, entered := scope.Run(ctx, 0, clib.StepOf(is, want))
		require.True(t, entered)
		return err
	}
	require.Zero(t, in(7, 7))
	require.Equal(t, 1, sets(), "the thread had none and keeps it")
	require.Zero(t, in(7, 7))
	require.Equal(t, 1, sets(), "nothing to be set")
	require.Zero(t, in(8, 8))
	require.Equal(t, 3, sets(), "set and restored")
	require.EqualValues(t, 700, in(9, 7), "set for a call that fails")
	err, _ := none.Run(0, 0, clib.StepOf(is, 7))
	require.Zero(t, err, "restored after a call that failed")

	err, entered := scope.Run(13, 0, clib.StepOf(find("add"), 1))
	require.False(t, entered)
	require.EqualValues(t, 201, err)
	require.Zero(t, int32(clib.Call(find("take_order"))), "nothing was called")
	require.Zero(t, in(7, 7))
}

func TestList(t *testing.T) {
	find, scope := library(t)
	for _, c := range []struct {
		events []uintptr
		done   int
		err    int32
	}{
		{nil, 0, 0},
		{[]uintptr{1, 2, 3}, 3, 0},
		{[]uintptr{1, 600, 3}, 1, 600},
		{[]uintptr{700, 600}, 0, 700},
	} {
		s := []clib.Step{{Fn: find("query"), N: 1, List: unsafe.SliceData(c.events), Count: len(c.events)}}
		if c.events == nil {
			s[0].List = new(uintptr)
		}
		err, _ := scope.Run(7, 0, s...)
		assert.Equal(t, c.err, err)
		assert.Equal(t, c.done, s[0].Done)
	}
}

func TestCallBack(t *testing.T) {
	find, _ := library(t)
	f := clib.Callback(func(x uintptr) uintptr { return uintptr(deep(100)) + x })
	assert.EqualValues(t, 100+7+1, int32(clib.Call(find("call_back"), f, 7)))
}

// deep makes the goroutine's stack grow.
func deep(n int) int {
	var room [1 << 10]byte
	if n == 0 {
		return 0
	}
	room[n] = 1
	return int(room[n]) + deep(n-1)
}

// Calls from several goroutines with small stacks, which grow and move meanwhile.
func TestGoroutines(t *testing.T) {
	find, scope := library(t)
	two, query := find("two"), find("query")
	var wg sync.WaitGroup
	for g := range uintptr(16) {
		wg.Go(func() {
			for i := range uintptr(2000) {
				s := clib.Step{Fn: two, N: 3}
				s.Args[1] = i
				s.Out(0, 0)
				s.Out(2, 1)
				events := [8]uintptr{1, 2, 3, 4, 5, 100 + g}
				steps := [2]clib.Step{s, {Fn: query, N: 1, List: &events[0], Count: len(events)}}
				err, entered := scope.Run(7+g%3, 0, steps[:]...)
				if !entered || err != int32(100+g) || steps[0].Value(0) != i+1 || steps[0].Value(1) != i+2 || steps[1].Done != 5 {
					t.Errorf("goroutine %d, call %d: %v, %d, %v", g, i, entered, err, steps[0].Value(0))
					return
				}
				if i%100 == 0 {
					deep(int(i / 20))
				}
			}
		})
	}
	wg.Wait()
}

func TestNoAllocation(t *testing.T) {
	find, scope := library(t)
	query := find("query")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		events := [4]uintptr{1, 2, 3, 4}
		_, _ = scope.Run(7, 0, clib.Step{Fn: query, N: 1, List: &events[0], Count: len(events)})
		_, _ = scope.Run(7, 0, clib.StepOf(query, 1), clib.StepOf(query, 2))
	}))
}

func BenchmarkRun(b *testing.B) {
	find, scope := library(b)
	query := find("query")
	b.Run("calls=1", func(b *testing.B) {
		for b.Loop() {
			_, _ = scope.Run(7, 0, clib.StepOf(query, 1))
		}
	})
	b.Run("calls=2", func(b *testing.B) {
		for b.Loop() {
			_, _ = scope.Run(7, 0, clib.StepOf(query, 1), clib.StepOf(query, 2))
		}
	})
	b.Run("list=64", func(b *testing.B) {
		var events [64]uintptr
		for b.Loop() {
			_, _ = scope.Run(7, 0, clib.Step{Fn: query, N: 1, List: &events[0], Count: len(events)})
		}
	})
}
