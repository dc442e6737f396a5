package interleave

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// The words are as those of sync/atomic, whose methods have the same names. Outside
// of a schedule they are just that.

func (t *thread) load(p unsafe.Pointer, short bool) (v uint64, own bool) {
	t.at(op{kind: reads, addr: p, short: short})
	if l := t.find(p); l != nil {
		return l.value, true
	}
	return 0, false
}

func (t *thread) change(p unsafe.Pointer, short bool) {
	t.at(op{kind: writes, addr: p, short: short, fence: true})
}

// Uint32 is an atomic.Uint32.
type Uint32 struct{ v atomic.Uint32 }

// Load returns the value.
func (x *Uint32) Load() uint32 {
	if t := self(); t != nil {
		if v, own := t.load(unsafe.Pointer(x), true); own {
			return uint32(v)
		}
	}
	return x.v.Load()
}

func (x *Uint32) change() {
	if t := self(); t != nil {
		t.change(unsafe.Pointer(x), true)
	}
}

// Store stores v.
func (x *Uint32) Store(v uint32) { x.change(); x.v.Store(v) }

// Add adds n and returns the sum.
func (x *Uint32) Add(n uint32) uint32 { x.change(); return x.v.Add(n) }

// Swap stores v and returns what was there.
func (x *Uint32) Swap(v uint32) uint32 { x.change(); return x.v.Swap(v) }

// CompareAndSwap stores v where old is, and reports whether it was.
func (x *Uint32) CompareAndSwap(old, v uint32) bool { x.change(); return x.v.CompareAndSwap(old, v) }

// Delay stores v as a plain store does on amd64, and reports whether it did: in a
// schedule only.
func (x *Uint32) Delay(v uint32) bool {
	t := self()
	if t != nil {
		t.delay(unsafe.Pointer(x), uint64(v), true)
	}
	return t != nil
}

// AwaitZero waits until the value is 0. Outside of a schedule it reports false.
func (x *Uint32) AwaitZero() bool {
	t := self()
	if t != nil {
		t.at(op{kind: reads, addr: unsafe.Pointer(x), short: true, wanted: true})
	}
	return t != nil
}

// Uint64 is an atomic.Uint64.
type Uint64 struct{ v atomic.Uint64 }

// Load returns the value.
func (x *Uint64) Load() uint64 {
	if t := self(); t != nil {
		if v, own := t.load(unsafe.Pointer(x), false); own {
			return v
		}
	}
	return x.v.Load()
}

func (x *Uint64) change() {
	if t := self(); t != nil {
		t.change(unsafe.Pointer(x), false)
	}
}

// Store stores v.
func (x *Uint64) Store(v uint64) { x.change(); x.v.Store(v) }

// Add adds n and returns the sum.
func (x *Uint64) Add(n uint64) uint64 { x.change(); return x.v.Add(n) }

// Swap stores v and returns what was there.
func (x *Uint64) Swap(v uint64) uint64 { x.change(); return x.v.Swap(v) }

// CompareAndSwap stores v where old is, and reports whether it was.
func (x *Uint64) CompareAndSwap(old, v uint64) bool { x.change(); return x.v.CompareAndSwap(old, v) }

// Delay stores v as a plain store does on amd64, and reports whether it did: in a
// schedule only.
func (x *Uint64) Delay(v uint64) bool {
	t := self()
	if t != nil {
		t.delay(unsafe.Pointer(x), v, false)
	}
	return t != nil
}

// Int64 is an atomic.Int64.
type Int64 struct{ v Uint64 }

// Load returns the value.
func (x *Int64) Load() int64 { return int64(x.v.Load()) }

// Store stores v.
func (x *Int64) Store(v int64) { x.v.Store(uint64(v)) }

// Add adds n and returns the sum.
func (x *Int64) Add(n int64) int64 { return int64(x.v.Add(uint64(n))) }

// Swap stores v and returns what was there.
func (x *Int64) Swap(v int64) int64 { return int64(x.v.Swap(uint64(v))) }

// CompareAndSwap stores v where old is, and reports whether it was.
func (x *Int64) CompareAndSwap(old, v int64) bool { return x.v.CompareAndSwap(uint64(old), uint64(v)) }

// Delay stores v as a plain store does on amd64, and reports whether it did: in a
// schedule only.
func (x *Int64) Delay(v int64) bool { return x.v.Delay(uint64(v)) }

// Int32 is an atomic.Int32.
type Int32 struct{ v Uint32 }

// Load returns the value.
func (x *Int32) Load() int32 { return int32(x.v.Load()) }

// Store stores v.
func (x *Int32) Store(v int32) { x.v.Store(uint32(v)) }

// Add adds n and returns the sum.
func (x *Int32) Add(n int32) int32 { return int32(x.v.Add(uint32(n))) }

// CompareAndSwap stores v where old is, and reports whether it was.
func (x *Int32) CompareAndSwap(old, v int32) bool { return x.v.CompareAndSwap(uint32(old), uint32(v)) }

// Bool is an atomic.Bool.
type Bool struct{ v Uint32 }

func number(v bool) uint32 {
	if v {
		return 1
	}
	return 0
}

// Load returns the value.
func (x *Bool) Load() bool { return x.v.Load() != 0 }

// Store stores v.
func (x *Bool) Store(v bool) { x.v.Store(number(v)) }

// Swap stores v and returns what was there.
func (x *Bool) Swap(v bool) bool { return x.v.Swap(number(v)) != 0 }

// CompareAndSwap stores v where old is, and reports whether it was.
func (x *Bool) CompareAndSwap(old, v bool) bool { return x.v.CompareAndSwap(number(old), number(v)) }

// Pointer is an atomic.Pointer.
type Pointer[T any] struct{ v atomic.Pointer[T] }

func (x *Pointer[T]) change() {
	if t := self(); t != nil {
		t.change(unsafe.Pointer(x), false)
	}
}

// Load returns the value.
func (x *Pointer[T]) Load() *T {
	if t := self(); t != nil {
		t.load(unsafe.Pointer(x), false)
	}
	return x.v.Load()
}

// Store stores v.
func (x *Pointer[T]) Store(v *T) { x.change(); x.v.Store(v) }

// Swap stores v and returns what was there.
func (x *Pointer[T]) Swap(v *T) *T { x.change(); return x.v.Swap(v) }

// CompareAndSwap stores v where old is, and reports whether it was.
func (x *Pointer[T]) CompareAndSwap(old, v *T) bool { x.change(); return x.v.CompareAndSwap(old, v) }

// Mutex is a sync.Mutex.
type Mutex struct {
	mu   sync.Mutex
	held uint32 // by a goroutine of a schedule
}

// Lock waits until nobody holds the mutex, and then does.
func (m *Mutex) Lock() {
	if t := self(); t != nil {
		t.at(op{kind: writes, addr: unsafe.Pointer(&m.held), short: true, fence: true, wanted: true})
		atomic.StoreUint32(&m.held, 1)
	}
	m.mu.Lock()
}

// TryLock is Lock that does not wait, and reports whether the caller has the mutex.
func (m *Mutex) TryLock() bool {
	t := self()
	if t != nil {
		t.at(op{kind: writes, addr: unsafe.Pointer(&m.held), short: true, fence: true})
	}
	ok := m.mu.TryLock()
	if ok && t != nil {
		atomic.StoreUint32(&m.held, 1)
	}
	return ok
}

// Unlock ends that the caller holds the mutex.
func (m *Mutex) Unlock() {
	if t := self(); t != nil {
		t.at(op{kind: writes, addr: unsafe.Pointer(&m.held), short: true, fence: true})
		atomic.StoreUint32(&m.held, 0)
	}
	m.mu.Unlock()
}

// Pin keeps other goroutines from the caller's processor until Unpin, and returns
// its number. Outside of a schedule it reports false.
func Pin() (processor int, ok bool) {
	t := self()
	if t == nil {
		return 0, false
	}
	word := &t.x.pins[t.processor]
	t.at(op{kind: writes, addr: unsafe.Pointer(word), short: true, wanted: true, pins: true})
	*word = 1
	return t.processor, true
}

// Unpin ends Pin, and reports false outside of a schedule.
func Unpin() bool {
	t := self()
	if t == nil {
		return false
	}
	word := &t.x.pins[t.processor]
	t.at(op{kind: writes, addr: unsafe.Pointer(word), short: true})
	*word = 0
	return true
}

// Barrier has every goroutine execute a full memory barrier, each at a moment of
// its own between the call and its return, as membarrier(2) does. done is false
// where that is refused; ok is false outside of a schedule.
func Barrier() (done, ok bool) {
	t := self()
	if t == nil {
		return false, false
	}
	if t.x.refuses {
		if t.x.barriers--; t.x.barriers < 0 {
			return false, true
		}
	}
	t.x.restart = t.x.restart || !t.x.drains
	t.x.drains = true
	t.at(op{fence: true})
	for _, u := range t.x.threads {
		if u != t {
			t.at(op{kind: reads, addr: unsafe.Pointer(&u.buffer), drains: u})
		}
	}
	return true, true
}

// StopWorld is Barrier that also waits, for every processor, until no goroutine is
// pinned to it. It reports false outside of a schedule.
func StopWorld() bool {
	t := self()
	if t == nil {
		return false
	}
	t.x.restart = t.x.restart || !t.x.drains
	t.x.drains = true
	t.at(op{fence: true})
	for _, u := range t.x.threads {
		if u != t {
			t.at(op{kind: reads, addr: unsafe.Pointer(&t.x.pins[u.processor]), short: true, wanted: true, drains: u})
		}
	}
	return true
}
