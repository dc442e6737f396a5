package interleave

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync/atomic"
	"unsafe"
)

// kind says what a step does to its word.
type kind uint8

const (
	reads kind = iota
	writes
)

// op is a step that a goroutine stands before.
type op struct {
	kind   kind
	short  bool           // the word has 32 bits
	fence  bool           // it waits for the goroutine's store buffer to be empty
	wanted bool           // it waits for the word, of 32 bits, to be want
	pushes bool           // it is a store to the buffer, which addr is
	pins   bool           // it waits for the buffers of the processor's other goroutines
	drains *thread        // it waits for that one's store buffer
	want   uint32         //
	addr   unsafe.Pointer // of the word; nil: none that another goroutine has
	also   unsafe.Pointer // another one, or nil
	where  string         // while steps are noted
}

// late is a store that is not in memory yet.
type late struct {
	addr  unsafe.Pointer
	value uint64
	short bool
	clock clock
	where string
}

// thread is a goroutine of the program.
type thread struct {
	x         *explorer
	number    int
	processor int
	f         func()
	op        op
	buffer    []late
	done      bool

	resumed func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
}

// abandoned unwinds a goroutine whose schedule has failed.
type abandoned struct{}

func (x *explorer) add(processor int, f func()) {
	if len(x.threads) == maxThreads || processor < 0 || processor >= maxThreads {
		panic(fmt.Sprintf("interleave: at most %d goroutines, on processors below that", maxThreads))
	}
	x.threads = append(x.threads, &thread{x: x, number: len(x.threads), processor: processor, f: f})
}

// start runs the goroutine up to its first step.
func (t *thread) start() {
	t.resumed, t.stop = iter.Pull(t.run)
	t.resume()
}

func (t *thread) resume() {
	active.Store(t)
	t.resumed()
	active.Store(nil)
}

func (t *thread) run(yield func(struct{}) bool) {
	t.yield = yield
	pprof.SetGoroutineLabels(marked)
	defer func() {
		t.done = true
		r := recover()
		if _, ok := r.(abandoned); r != nil && !ok && t.x.failed == nil {
			if err, ok := r.(error); ok {
				t.x.failed = fmt.Errorf("goroutine %c: %w", name(t.number), err)
			} else {
				t.x.failed = fmt.Errorf("goroutine %c: %v", name(t.number), r)
			}
		}
		if !t.x.starting && !t.x.ended {
			t.x.next = t.x.step()
		}
	}()
	t.f()
}

// at stops the goroutine before a step until it is its turn.
func (t *thread) at(o op) {
	x := t.x
	if x.ended {
		return
	}
	if x.tracing {
		o.where = where()
	}
	t.op = o
	if !x.starting {
		if x.next = x.step(); x.next == t {
			x.next = nil
			return
		}
	}
	if !t.yield(struct{}{}) {
		panic(abandoned{})
	}
}

// find returns the goroutine's own newest store to a word that is not in memory.
func (t *thread) find(p unsafe.Pointer) *late {
	for i := len(t.buffer) - 1; i >= 0; i-- {
		if t.buffer[i].addr == p {
			return &t.buffer[i]
		}
	}
	return nil
}

// delay puts a store in the buffer.
func (t *thread) delay(p unsafe.Pointer, v uint64, short bool) {
	t.at(op{kind: writes, addr: unsafe.Pointer(&t.buffer), pushes: true}) // as others empty it
	if t.x.ended {
		store(p, v, short)
		return
	}
	l := late{addr: p, value: v, short: short, clock: t.x.clocks[t.number], where: t.op.where}
	t.buffer = append(t.buffer, l)
}

// flush brings the oldest store of the buffer to memory.
func (t *thread) flush() {
	l := t.buffer[0]
	t.buffer = append(t.buffer[:0], t.buffer[1:]...)
	store(l.addr, l.value, l.short)
}

func store(p unsafe.Pointer, v uint64, short bool) {
	if short {
		atomic.StoreUint32((*uint32)(p), uint32(v))
	} else {
		atomic.StoreUint64((*uint64)(p), v)
	}
}

// active is the goroutine that runs, and marked what its coroutine is known by:
// goroutines that are not of the program may use the same words meanwhile.
var (
	active atomic.Pointer[thread]
	marked = pprof.WithLabels(context.Background(), pprof.Labels("goroutine", "interleave"))
	mark   = labelsOf(marked)
)

//go:linkname goroutineLabels runtime/pprof.runtime_getProfLabel
func goroutineLabels() unsafe.Pointer

// labelsOf returns what goroutineLabels returns where labels are set.
func labelsOf(ctx context.Context) (p unsafe.Pointer) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pprof.SetGoroutineLabels(ctx)
		p = goroutineLabels()
	}()
	<-done
	return p
}

// self returns the goroutine of the program that calls, or nil.
func self() *thread {
	t := active.Load()
	if t == nil || goroutineLabels() != mark {
		return nil
	}
	return t
}

// where returns the place of the caller outside of the packages with words.
func where() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		switch {
		case strings.Contains(f.File, "/internal/atomic/interleave/") && !strings.HasSuffix(f.File, "_test.go"),
			strings.Contains(f.File, "/internal/relaxed/"), strings.Contains(f.File, "/internal/atomic/"):
		default:
			file := f.File[strings.LastIndexByte(f.File, '/')+1:]
			return fmt.Sprintf("%s:%d %s", file, f.Line, f.Function[strings.LastIndexByte(f.Function, '/')+1:])
		}
		if !more {
			return "?"
		}
	}
}

// describe says what an actor is about to do.
func (x *explorer) describe(a int) string {
	if a >= maxThreads {
		t := x.threads[a-maxThreads]
		l := t.buffer[0]
		return fmt.Sprintf("%c  the store of %s reaches memory: %d", name(a), l.where, l.value)
	}
	o := &x.threads[a].op
	what := "reads"
	if o.kind == writes {
		what = "writes"
	}
	return fmt.Sprintf("%c  %s %s", name(a), what, o.where)
}
