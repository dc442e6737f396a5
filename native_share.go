package cupool

import (
	"errors"
	"fmt"
	"os"

	"github.com/cupool/cupool/internal/sizeclass"
)

// Pools and their blocks in several processes of one computer. The process that
// made a pool exports it, as a file descriptor, and then single blocks, as plain
// bytes; another one imports both, and may use and free the blocks, but has to
// have freed them before the first process does. What orders the work of the two
// processes is up to them.

// Export returns the pool as a file descriptor for other processes, which the
// caller closes: as an entry of exec.Cmd.ExtraFiles, or by Send. The pool must
// have been made with NativePoolConfig.Shareable; else it fails with
// ErrNotSupported, or with ErrClosed or what the device says.
func (n *Native) Export() (*os.File, error) {
	if err := n.usable("export"); err != nil {
		return nil, err
	}
	if n.imported || !n.own {
		return nil, fmt.Errorf("cupool: exporting a native pool: only a pool that NewNative made Shareable can be: %w", ErrNotSupported)
	}
	fd, err := n.d.ExportNativePool(n.pool)
	if err != nil {
		return nil, n.c.driverError(fmt.Errorf("cupool: exporting a native pool: %w", err))
	}
	n.mu.Lock()
	n.exported = true
	n.mu.Unlock()
	return os.NewFile(uintptr(fd), "native pool"), nil
}

// ImportNative returns a Native for a pool that another process exported. It
// gives out no memory of its own, only what ImportBlock brings. f stays the
// caller's to close. It fails with ErrNotSupported as NewNative does, or with
// what the device says.
func ImportNative(c *Caching, f *os.File) (*Native, error) {
	d, err := nativePoolsOf(c)
	if err != nil {
		return nil, err
	}
	n := &Native{c: c, d: d, own: true, imported: true}
	if n.pool, err = d.ImportNativePool(int(f.Fd())); err != nil {
		return nil, fmt.Errorf("cupool: importing a native pool on %s: %w", c.Driver().Name(), err)
	}
	return n.open(), nil
}

// ExportBlock describes a live block for other processes, which also have to be
// told its size. It fails with ErrNotSupported before the pool was exported,
// with the errors of Lookup, or with what the device says.
func (n *Native) ExportBlock(h Block) (PoolPointer, error) {
	n.mu.Lock()
	_, err := n.findLocked("export", h, ErrUseAfterFree)
	exported := n.exported
	n.mu.Unlock()
	switch {
	case err != nil:
		return PoolPointer{}, err
	case !exported:
		return PoolPointer{}, &BlockError{Op: "export", Ptr: h.ptr, Size: h.size, Err: ErrNotSupported, Detail: "its pool has to be exported first (Export)"}
	}
	data, err := n.d.ExportNativePointer(h.ptr)
	return data, n.c.driverError(err)
}

// ImportBlock maps a block of size bytes of another process's pool, for work on
// s (nil: the default stream). Free unmaps it again, behind the work of the
// streams that use it; the memory is the other process's to free after that. It
// fails with ErrNotSupported for a pool that was not imported, ErrInvalidSize,
// ErrForeignStream, ErrClosed, or what the device says.
func (n *Native) ImportBlock(data PoolPointer, size int64, s *Stream) (Block, error) {
	if s == nil {
		s = n.DefaultStream()
	}
	e := &BlockError{Op: "import", Size: size, Stream: s.handle}
	switch {
	case !n.imported:
		e.Err, e.Detail = ErrNotSupported, "the pool is this process's own"
	case s.c != n.c.family.root:
		e.Err, e.Detail = ErrForeignStream, "the stream was made by another allocator"
	case size <= 0 || size > sizeclass.MaxRequest:
		e.Err, e.Detail = ErrInvalidSize, "it is the one that was allocated"
	default:
		if err := errors.Join(n.usable("import"), s.usable("import")); err != nil {
			return Block{}, err
		}
		p, err := n.d.ImportNativePointer(n.pool, data)
		if err != nil {
			return Block{}, n.c.driverError(fmt.Errorf("cupool: importing a block: %w", err))
		}
		return n.enter(p, size, s)
	}
	return Block{}, e
}
