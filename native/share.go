package native

import (
	"errors"
	"fmt"
	"os"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/poolaccess"
	"github.com/cupool/cupool/internal/sizeclass"
)

// This file shares pools and their blocks with other processes of one computer.
// The process that made a pool exports it as a file descriptor, and then single
// blocks as plain bytes. Another process imports both. It may use the blocks, and
// has to free them before the first process does. The processes order their work
// themselves.

// Export returns the pool as a file descriptor, which the caller closes. It reaches
// another process as an entry of exec.Cmd.ExtraFiles, or by Send. Export
// fails with ErrNotSupported for a pool that was made without
// cuda.NativePoolConfig.Shareable, with ErrClosed, or with the device's error.
func (n *Allocator) Export() (f *os.File, err error) {
	if err := n.begin("export"); err != nil {
		return nil, err
	}
	defer n.end(&err)
	if n.imported || !n.own {
		return nil, fmt.Errorf("cupool: exporting a native pool: only a pool that New made Shareable can be: %w", cupool.ErrNotSupported)
	}
	fd, err := n.d.ExportNativePool(n.pool)
	if err != nil {
		return nil, poolaccess.Of(n.c).DriverError(fmt.Errorf("cupool: exporting a native pool: %w", err))
	}
	n.mu.Lock()
	n.exported = true
	n.mu.Unlock()
	return os.NewFile(uintptr(fd), "native pool"), nil
}

// Import returns an Allocator for a pool that another process exported. Its
// blocks come from ImportBlock alone. The caller closes f. Import fails with
// ErrNotSupported or a *cupool.ConfigError as New does, with cupool.ErrInvalidHandle for a
// nil f, or with the device's error.
func Import(c *cupool.Pool, f *os.File) (*Allocator, error) {
	d, err := poolsOf(c)
	if err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("cupool: importing a native pool: the file is nil: %w", cupool.ErrInvalidHandle)
	}
	n := newAllocator(c, d)
	n.own, n.imported = true, true
	if n.pool, err = d.ImportNativePool(int(f.Fd())); err != nil {
		return nil, fmt.Errorf("cupool: importing a native pool on %s: %w", c.Driver().Name(), err)
	}
	return n, nil
}

// ExportBlock describes a live block for other processes, which also need its size.
// It fails with ErrNotSupported for a pool that was not exported, with the errors
// of Lookup, or with the device's error.
func (n *Allocator) ExportBlock(h cupool.Block) (data cuda.PoolPointer, err error) {
	if err := n.made("export"); err != nil {
		return cuda.PoolPointer{}, err
	}
	n.mu.Lock()
	if _, err = n.findLocked("export", h, cupool.ErrUseAfterFree); err != nil {
		n.mu.Unlock()
		return cuda.PoolPointer{}, err
	}
	exported := n.exported
	n.calls++
	n.mu.Unlock()
	defer n.end(&err)
	if !exported {
		return cuda.PoolPointer{}, &cupool.BlockError{Op: "export", Ptr: h.Ptr(), Size: h.Size(), Err: cupool.ErrNotSupported, Detail: "its pool has to be exported first (Export)"}
	}
	data, err = n.d.ExportNativePointer(h.Ptr())
	return data, poolaccess.Of(n.c).DriverError(err)
}

// ImportBlock maps a block of size bytes of another process's pool, for work on
// s (nil: the default stream). Free unmaps the block behind the work of the
// streams that use it, and after that the other process may free it. ImportBlock
// fails with ErrNotSupported for a pool that was not imported, with
// ErrInvalidSize, ErrForeignStream or ErrClosed, or with the device's error. The
// host device refuses a size that is larger than the allocation; CUDA does not
// tell it, so there size must come from a process that is trusted.
func (n *Allocator) ImportBlock(data cuda.PoolPointer, size int64, s *cupool.Stream) (b cupool.Block, err error) {
	if err := n.made("import"); err != nil {
		return cupool.Block{}, err
	}
	if s == nil {
		s = n.DefaultStream()
	}
	e := &cupool.BlockError{Op: "import", Size: size, Stream: s.Handle()}
	switch {
	case !n.imported:
		e.Err, e.Detail = cupool.ErrNotSupported, "the pool is this process's own"
	case s.Pool() != n.root:
		e.Err, e.Detail = cupool.ErrForeignStream, "the stream was made by another allocator"
	case size <= 0 || size > sizeclass.MaxRequest:
		e.Err, e.Detail = cupool.ErrInvalidSize, "it is the one that was allocated"
	default:
		if err := n.begin("import"); err != nil {
			return cupool.Block{}, err
		}
		defer n.end(&err)
		if err := streamUsable("import", s); err != nil {
			return cupool.Block{}, err
		}
		p, err := n.d.ImportNativePointer(n.pool, data)
		if err != nil {
			return cupool.Block{}, poolaccess.Of(n.c).DriverError(fmt.Errorf("cupool: importing a block: %w", err))
		}
		if d, ok := n.d.(interface{ NativePointerSize(cupool.Ptr) int64 }); ok && size > d.NativePointerSize(p) {
			e.Err, e.Detail = cupool.ErrInvalidSize, "the other process's allocation is smaller"
			return cupool.Block{}, errors.Join(e, n.d.FreeAsync(p, s.Handle()))
		}
		return n.enter("import", p, size, s)
	}
	return cupool.Block{}, e
}
