// Package vmem maps physical memory to addresses. What a failing call leaves
// mapped or reserved is remembered and given back later.
package vmem

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/lock"
)

// Budget counts the physical memory of a pool against its limits.
type Budget interface {
	// Held returns the bytes that are counted.
	Held() int64
	// Take counts size more bytes, or fails with ErrOutOfMemory.
	Take(size int64) error
	// Cancel takes back what Take counted, as the device had no memory.
	Cancel(size int64)
	// Keep says that what Take counted is held.
	Keep()
	// Return counts size bytes that went back to the device.
	Return(size int64)
}

// Handle is physical memory of the device. 0 is none.
type Handle = uintptr

// Mapper is a pool's way to the device's virtual memory. It is safe for use
// from several goroutines; its lock is taken last.
type Mapper struct {
	Granularity int64 // bytes: the unit of sizes and addresses
	Capacity    int64 // bytes that the device has

	Creates, Releases atomic.Int64 // of handles, since these were last set to 0
	Handles           atomic.Int64 // that there are

	device device.VirtualMemory
	name   string // of the device
	budget Budget
	failed func(error) error // told of every error of the device, which it returns

	mu      lock.Mutex
	left    []leftover
	aliases map[Handle][]device.Ptr // addresses where memory is mapped and not used
}

// leftover is memory that a failing call kept from being given back, or addresses.
// Nothing uses it.
type leftover struct {
	base      device.Ptr
	mapped    int64  // bytes from base on that are still mapped
	addresses int64  // bytes from base on that are still reserved
	handle    Handle // still held; 0 where there are addresses
}

// New returns a mapper over a device of so many bytes.
func New(d device.VirtualMemory, name string, capacity int64, b Budget, failed func(error) error) *Mapper {
	return &Mapper{Granularity: d.VMMGranularity(), Capacity: capacity, device: d, name: name, budget: b, failed: failed, aliases: map[Handle][]device.Ptr{}}
}

// Reserve returns size bytes of addresses.
func (m *Mapper) Reserve(size int64) (device.Ptr, error) {
	p, err := m.device.AddressReserve(size)
	if err != nil {
		return 0, m.failed(fmt.Errorf("cupool: reserving %d bytes of addresses on %s: %w", size, m.name, err))
	}
	return p, nil
}

// Held returns the bytes of memory that the pool holds.
func (m *Mapper) Held() int64 { return m.budget.Held() }

// Fits fails with ErrOutOfMemory when the device cannot have size more bytes,
// whatever others hold of it.
func (m *Mapper) Fits(size int64) error {
	if held := m.Held(); size > m.Capacity-held {
		return fmt.Errorf("%w: %d more bytes, with %d reserved of the device's %d", device.ErrOutOfMemory, size, held, m.Capacity)
	}
	return nil
}

// Unreserve gives addresses back, with nothing mapped to them but what failing calls left.
func (m *Mapper) Unreserve(base device.Ptr, size int64) error {
	l := leftover{base: base, addresses: size}
	if err := m.Retry(); err != nil && m.isMapped(l) {
		m.remember(l)
		return err
	}
	return m.giveBack(l)
}

// isMapped reports whether memory is left over that is mapped to some addresses.
func (m *Mapper) isMapped(to leftover) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.left, func(l leftover) bool {
		return l.mapped > 0 && to.base <= l.base && l.base < to.base+device.Ptr(to.addresses)
	})
}

// Create makes memory of the sizes given, maps it side by side from an address
// on and opens it for access. When a call fails, everything it did is undone.
func (m *Mapper) Create(at device.Ptr, sizes []int64) (handles []Handle, err error) {
	total := int64(0)
	for _, size := range sizes {
		total += size
	}
	if err := m.budget.Take(total); err != nil {
		return nil, err
	}
	left := m.Retry()
	handles = make([]Handle, len(sizes))
	mapped, p := 0, at
	for i, size := range sizes {
		if handles[i], err = m.device.MemCreate(size); err != nil {
			break
		}
		m.Creates.Add(1)
		m.Handles.Add(1)
		if err = m.device.MemMap(p, size, handles[i]); err != nil {
			err = errors.Join(err, left) // it may be what is mapped there
			break
		}
		p += device.Ptr(size)
		mapped++
	}
	if err == nil {
		err = m.device.MemSetAccess(at, total)
	}
	if err != nil {
		m.budget.Cancel(total)
		return nil, m.failed(fmt.Errorf("cupool: backing %d bytes at %v on %s: %w", total, at, m.name, errors.Join(err, m.undo(at, sizes, handles, mapped))))
	}
	m.budget.Keep()
	return handles, nil
}

// undo unmaps the first mapped of the handles and releases all.
func (m *Mapper) undo(at device.Ptr, sizes []int64, handles []Handle, mapped int) error {
	var errs []error
	for i, h := range handles {
		l := leftover{base: at, handle: h}
		if i < mapped {
			l.mapped = sizes[i]
		}
		if l != (leftover{base: at}) {
			errs = append(errs, m.giveBack(l))
		}
		at += device.Ptr(sizes[i])
	}
	return errors.Join(errs...)
}

// Piece is physical memory that exists.
type Piece struct {
	Handle Handle
	Size   int64
}

// Map maps pieces side by side from an address on, also such as are mapped
// elsewhere already, and opens them for access, or undoes what it did.
func (m *Mapper) Map(at device.Ptr, pieces []Piece) (err error) {
	left := m.Retry()
	p, total := at, int64(0)
	for _, x := range pieces {
		total += x.Size
	}
	for _, x := range pieces {
		if err = m.device.MemMap(p, x.Size, x.Handle); err != nil {
			err = errors.Join(err, left) // it may be what is mapped there
			break
		}
		p += device.Ptr(x.Size)
	}
	if err == nil {
		err = m.device.MemSetAccess(at, total)
	}
	if err != nil {
		undo := m.giveBack(leftover{base: at, mapped: int64(p - at)})
		return m.failed(fmt.Errorf("cupool: mapping %d bytes in %d pieces at %v on %s: %w", total, len(pieces), at, m.name, errors.Join(err, undo)))
	}
	return nil
}

// Unmap unmaps what was mapped as a whole or as whole handles. Nothing may use
// the memory there.
func (m *Mapper) Unmap(at device.Ptr, size int64) error {
	if err := m.device.MemUnmap(at, size); err != nil {
		return m.failed(fmt.Errorf("cupool: unmapping %d bytes at %v on %s: %w", size, at, m.name, err))
	}
	return nil
}

// Leave is Unmap that is tried again later where it fails.
func (m *Mapper) Leave(at device.Ptr, size int64) error {
	return m.giveBack(leftover{base: at, mapped: size})
}

// LeaveAlias is UnmapAlias that is tried again later where it fails.
func (m *Mapper) LeaveAlias(at device.Ptr, p Piece) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.aliases[p.Handle], at) {
		return nil
	}
	m.dropAliasesLocked(p.Handle, []device.Ptr{at})
	return m.leaveLocked(leftover{base: at, mapped: p.Size})
}

// Release gives memory back to the device that is mapped at aliases at most.
func (m *Mapper) Release(p Piece) error {
	err := errors.Join(m.unmapAliases(p), m.giveBack(leftover{handle: p.Handle}))
	m.budget.Return(p.Size)
	return err
}

// Remove unmaps memory and gives it back to the device.
func (m *Mapper) Remove(at device.Ptr, p Piece) error {
	err := errors.Join(m.unmapAliases(p), m.giveBack(leftover{base: at, mapped: p.Size, handle: p.Handle}))
	m.budget.Return(p.Size)
	return err
}

// AddAlias notes that memory is mapped at an address, too, where nothing uses it until
// DropAliases. Release and Remove unmap it there.
func (m *Mapper) AddAlias(h Handle, at device.Ptr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.aliases[h] = append(m.aliases[h], at)
}

// HasAlias reports whether memory is still mapped at an alias. The handle of memory that
// went back to the device may name other memory by now.
func (m *Mapper) HasAlias(h Handle, at device.Ptr) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.aliases[h], at)
}

// DropAliases forgets aliases, which stay mapped.
func (m *Mapper) DropAliases(h Handle, at []device.Ptr) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dropAliasesLocked(h, at)
}

func (m *Mapper) dropAliasesLocked(h Handle, at []device.Ptr) {
	rest := slices.DeleteFunc(m.aliases[h], func(p device.Ptr) bool { return slices.Contains(at, p) })
	if m.aliases[h] = rest; len(rest) == 0 {
		delete(m.aliases, h)
	}
}

// UnmapAlias ends an alias, if the memory did not go back to the device.
func (m *Mapper) UnmapAlias(at device.Ptr, p Piece) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.aliases[p.Handle], at) {
		return nil
	}
	err := m.Unmap(at, p.Size)
	if err == nil {
		m.dropAliasesLocked(p.Handle, []device.Ptr{at})
	}
	return err
}

// unmapAliases ends the aliases of memory that goes back to the device.
func (m *Mapper) unmapAliases(p Piece) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, at := range m.aliases[p.Handle] {
		errs = append(errs, m.leaveLocked(leftover{base: at, mapped: p.Size}))
	}
	delete(m.aliases, p.Handle)
	return errors.Join(errs...)
}

// leaveLocked is giveBack with the lock held.
func (m *Mapper) leaveLocked(l leftover) error {
	err := m.tryGiveBack(&l)
	if err != nil {
		m.left = append(m.left, l)
	}
	return err
}

// giveBack gives memory back, as far as the device lets it, and remembers the
// rest.
func (m *Mapper) giveBack(l leftover) error {
	err := m.tryGiveBack(&l)
	if err != nil {
		m.remember(l)
	}
	return err
}

func (m *Mapper) remember(l leftover) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = append(m.left, l)
}

// Left reports whether there is something to Retry.
func (m *Mapper) Left() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.left) > 0
}

// Retry tries again to give back what failing calls left.
func (m *Mapper) Retry() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	rest := m.left[:0]
	for _, l := range m.left {
		if err := m.tryGiveBack(&l); err != nil {
			errs = append(errs, err)
			rest = append(rest, l)
		}
	}
	m.left = rest
	return errors.Join(errs...)
}

// tryGiveBack gives back what l is, and takes off it what was unmapped where the rest
// stays.
func (m *Mapper) tryGiveBack(l *leftover) error {
	if l.mapped > 0 {
		if err := m.Unmap(l.base, l.mapped); err != nil {
			return err
		}
		l.mapped = 0
	}
	var err error
	if l.addresses > 0 {
		err = m.device.AddressFree(l.base, l.addresses)
	}
	if l.handle != 0 {
		if err = m.device.MemRelease(l.handle); err == nil {
			m.Releases.Add(1)
			m.Handles.Add(-1)
		}
	}
	if err != nil {
		return m.failed(fmt.Errorf("cupool: giving back memory at %v on %s: %w", l.base, m.name, err))
	}
	return nil
}
