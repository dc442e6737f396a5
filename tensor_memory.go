package cupool

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"gorgonia.org/tensor"
)

// memory is a live block as tensor sees it. There is one for each slot of
// an allocator's block table, so that Alloc makes no Go object; it is
// overwritten when the slot is handed out again.
type memory struct {
	ptr  Ptr
	size int64
}

func (m *memory) Uintptr() uintptr { return uintptr(m.ptr) }
func (m *memory) MemSize() uintptr { return uintptr(m.size) }
func (m *memory) String() string   { return fmt.Sprintf("%v (%d bytes)", m.ptr, m.size) }

const memoryChunk = 1 << 10

// memoryTables hold memory objects by the number of the allocator, of which
// there are few: that of the engine, and pools that lend it memory.
type memoryTables struct {
	list atomic.Pointer[[]*memoryTable]
	mu   sync.Mutex // taken to add to list
}

// set returns the memory object of a block.
func (t *memoryTables) set(b Block) *memory {
	if list := t.list.Load(); list != nil {
		for _, m := range *list {
			if m.pool == b.pool() {
				return m.set(b)
			}
		}
	}
	return t.add(b.pool()).set(b)
}

func (t *memoryTables) add(pool uint32) *memoryTable {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []*memoryTable
	if old := t.list.Load(); old != nil {
		list = slices.Clone(*old)
	}
	if i := slices.IndexFunc(list, func(m *memoryTable) bool { return m.pool == pool }); i >= 0 {
		return list[i]
	}
	m := &memoryTable{pool: pool}
	list = append(list, m)
	t.list.Store(&list)
	return m
}

// memoryTable holds memory objects by slot, in chunks that do not move.
type memoryTable struct {
	pool   uint32
	chunks atomic.Pointer[[]*[memoryChunk]memory]
	mu     sync.Mutex // taken to add chunks
}

// set returns the memory object of a block.
func (t *memoryTable) set(b Block) *memory {
	i := int(b.id() / memoryChunk)
	chunks := t.chunks.Load()
	if chunks == nil || i >= len(*chunks) || (*chunks)[i] == nil {
		chunks = t.grow(i)
	}
	m := &(*chunks)[i][b.id()%memoryChunk]
	*m = memory{ptr: b.ptr, size: b.size}
	return m
}

func (t *memoryTable) grow(i int) *[]*[memoryChunk]memory {
	t.mu.Lock()
	defer t.mu.Unlock()
	var chunks []*[memoryChunk]memory
	if old := t.chunks.Load(); old != nil {
		chunks = slices.Clone(*old)
	}
	for len(chunks) <= i {
		chunks = append(chunks, nil)
	}
	if chunks[i] == nil {
		chunks[i] = new([memoryChunk]memory)
	}
	t.chunks.Store(&chunks)
	return &chunks
}

// noMemory is the memory of zero bytes.
var noMemory memory

// zeroOnStream is the size in bytes from which Alloc has the device zero
// memory that the CPU could zero itself: about where a stream's set-up costs
// no more than a tenth of the zeroing.
const zeroOnStream = 4 << 20

// alloc takes a block from the allocator. Its contents are undefined.
func (e *Engine) alloc(size int64) (Block, error) {
	b, err := e.source().Alloc(size, e.s)
	if err != nil {
		return Block{}, engineError("alloc", err)
	}
	if e.scope.Load() != nil && !b.IsEmpty() {
		e.enter(b)
	}
	return b, nil
}

// extent returns where memory is. Empty memory has no address: asking a tensor
// for it would panic.
func extent(mem tensor.Memory) (Ptr, int64) {
	if m, ok := mem.(*memory); ok { // what Free gets most, without three calls
		return m.ptr, m.size
	}
	if isNil(mem) || mem.MemSize() == 0 {
		return 0, 0
	}
	return Ptr(mem.Uintptr()), int64(mem.MemSize())
}

// isNil reports whether there is no memory, not even an empty one. tensor
// returns nil pointers inside interfaces along with errors.
func isNil(mem tensor.Memory) bool {
	d, ok := mem.(*tensor.Dense)
	return mem == nil || ok && d == nil
}

// cpuBytes returns the memory at p as bytes. p may be outside Go's heap or
// inside it; in the latter case the caller keeps the object alive. The
// slice is put together in memory because a conversion from uintptr would
// claim that p is a pointer that Go knows.
func cpuBytes(p Ptr, n int64) []byte { return sliceAt[byte](p, int(n)) }

// sliceAt is cpuBytes for n elements of a type.
func sliceAt[T any](p Ptr, n int) []T {
	header := struct {
		p        Ptr
		len, cap int
	}{p, n, n}
	return *(*[]T)(unsafe.Pointer(&header))
}

// onDevice reports whether [p, p+n) is pool memory that the CPU cannot touch.
// Addresses that the allocator does not know are the host's. It fails with
// ErrUseAfterFree, or ErrInvalidRange when the range leaves its block.
func (e *Engine) onDevice(p Ptr, n int64) (bool, error) {
	if e.accessible {
		return false, nil
	}
	b, err := e.lookup(p)
	switch {
	case errors.Is(err, ErrForeignPointer):
		return false, nil
	case err != nil:
		return false, err
	case p+Ptr(n) > b.ptr+Ptr(b.size):
		return false, &BlockError{Op: "access", Ptr: p, Size: n, Err: ErrInvalidRange, Detail: fmt.Sprintf("beyond the end of block %v", b)}
	}
	return true, nil
}

// zero clears memory, so that the next to look at it, on the stream or on
// the CPU where that is possible, sees zeros.
func (e *Engine) zero(p Ptr, n int64) error {
	dev, err := e.onDevice(p, n)
	if err != nil {
		return engineError("zero", err)
	}
	return e.clear(p, n, dev || n >= zeroOnStream && e.owns(p))
}

// clear is zero of memory that is known to be the pool's if the stream is to
// do it.
func (e *Engine) clear(p Ptr, n int64, onStream bool) error {
	if onStream {
		if err := e.work.Memset(p, 0, n); err != nil {
			return engineError("zero", err)
		}
		return e.hostReady()
	}
	if err := e.hostReady(); err != nil {
		return err
	}
	clear(cpuBytes(p, n))
	return nil
}

// read copies memory to dst, in stream order.
func (e *Engine) read(dst []byte, p Ptr) error {
	dev, err := e.onDevice(p, int64(len(dst)))
	switch {
	case err != nil:
		return engineError("read", err)
	case dev && e.captured != nil:
		return engineError("read", errCaptured)
	case dev:
		return engineError("read", e.s.CopyOut(dst, p))
	}
	if err := e.hostReady(); err != nil {
		return err
	}
	copy(dst, cpuBytes(p, int64(len(dst))))
	return nil
}

// write copies src to memory, in stream order.
func (e *Engine) write(p Ptr, src []byte) error {
	dev, err := e.onDevice(p, int64(len(src)))
	switch {
	case err != nil:
		return engineError("write", err)
	case dev && e.captured != nil:
		return engineError("write", errCaptured)
	case dev:
		return engineError("write", e.s.CopyIn(p, src))
	}
	if err := e.hostReady(); err != nil {
		return err
	}
	copy(cpuBytes(p, int64(len(src))), src)
	return nil
}

// fillChunk is the most bytes of a pattern that are put together at once.
const fillChunk = 1 << 20

// fill repeats pattern over [p, p+n); n is a multiple of its length.
func (e *Engine) fill(p Ptr, n int64, pattern []byte) error {
	if bytes.Count(pattern, pattern[:1]) == len(pattern) {
		if dev, err := e.onDevice(p, n); err != nil || dev {
			if err == nil {
				err = e.work.Memset(p, pattern[0], n)
			}
			return engineError("memset", err)
		}
	}
	if dev, err := e.onDevice(p, n); err == nil && dev {
		if ok, err := e.gpu.fillRange(p, n, pattern); ok {
			return err
		}
	}
	chunk := bytes.Repeat(pattern, int(max(1, min(n, fillChunk)/int64(len(pattern)))))
	for n > 0 {
		m := min(n, int64(len(chunk)))
		if err := e.write(p, chunk[:m]); err != nil {
			return err
		}
		p, n = p+Ptr(m), n-m
	}
	return nil
}

// patternOf returns the bytes of one element.
func patternOf(mem tensor.Memory, val interface{}) ([]byte, error) {
	v := reflect.ValueOf(val)
	if !v.IsValid() || !isPlain(v.Type()) || v.Type().Size() == 0 {
		return nil, fmt.Errorf("a value of type %T: %w", val, ErrNotSupported)
	}
	if t, ok := mem.(tensor.Dtyper); ok && t.Dtype().Type != v.Type() {
		return nil, fmt.Errorf("a value of type %T for elements of type %v: %w", val, t.Dtype(), ErrSizeMismatch)
	}
	box := reflect.New(v.Type())
	box.Elem().Set(v)
	pattern := bytes.Clone(unsafe.Slice((*byte)(box.UnsafePointer()), v.Type().Size()))
	return pattern, nil
}
