package main

// #include "internal.h"
import "C"

import (
	"cmp"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
)

// sharing returns what maps memory of other processes.
func (d *driver) sharing() (device.RangeSharing, error) {
	if s, ok := d.Driver.(device.RangeSharing); ok {
		return s, nil
	}
	return nil, faultf(C.CUPOOL_ERROR_NOT_SUPPORTED, "%s shares no memory", d.Name())
}

//export cupoolGoExport
func cupoolGoExport(t *C.thread, p C.uintptr_t, size C.size_t, skip *C.size_t, pieces *C.cupool_piece, count *C.size_t) (st C.cupool_status) {
	defer caught(t, &st)
	return done(t, byAddress(ptr(p), func(g *gpu) error {
		if _, ok := g.access.At(ptr(p)); !ok {
			return &cupool.BlockError{Op: "export", Ptr: ptr(p), Size: int64(size), Err: cupool.ErrForeignPointer, Detail: "no pool has the address"}
		}
		s, err := g.driver.sharing()
		if err = cmp.Or(err, possible(size)); err != nil {
			return err
		}
		defer relaxed()()
		r, err := s.ExportRange(ptr(p), int64(size))
		if err != nil {
			return err
		}
		defer r.Close()
		room := *count
		if pieces == nil {
			room = 0
		}
		*count, *skip = C.size_t(len(r.Pieces)), C.size_t(r.Skip)
		if room < *count {
			return faultf(C.CUPOOL_ERROR_INVALID, "the range is of %d pieces, and there is room for %d", len(r.Pieces), uint64(room))
		}
		list := make([]C.cupool_piece, len(r.Pieces))
		for i, piece := range r.Pieces {
			list[i] = C.cupool_piece{size: C.size_t(piece.Size), fd: -1}
			name := (*[64]byte)(unsafe.Pointer(&list[i].name))
			if piece.File == nil {
				*name = piece.Name
				continue
			}
			*name = piece.Fabric
			fd, err := dup(int(piece.File.Fd()))
			if err != nil {
				for _, made := range list[:i] {
					syscall.Close(int(made.fd))
				}
				return err
			}
			list[i].fd = C.int(fd)
		}
		copy(unsafe.Slice(pieces, len(list)), list)
		return nil
	}))
}

// dup duplicates a descriptor. A program that the process starts meanwhile does not get it.
func dup(fd int) (int, error) {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return -1, os.NewSyscallError("fcntl", errno)
	}
	return int(n), nil
}

// mostPieces is more than the pieces that any address range has room for.
const mostPieces = 1 << 30

//export cupoolGoImport
func cupoolGoImport(t *C.thread, ordinal C.int, skip, size C.size_t, pieces *C.cupool_piece, count C.size_t, p *C.uintptr_t) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		s, err := g.driver.sharing()
		if err = cmp.Or(err, possible(skip, size)); err != nil {
			return err
		}
		if count > mostPieces {
			return faultf(C.CUPOOL_ERROR_INVALID, "no range is of %d pieces", uint64(count))
		}
		r := device.SharedRange{Skip: int64(skip), Size: int64(size)}
		defer r.Close()
		for _, piece := range unsafe.Slice(pieces, int(count)) {
			if err := possible(piece.size); err != nil {
				return err
			}
			x := device.SharedPiece{Size: int64(piece.size)}
			name := *(*[64]byte)(unsafe.Pointer(&piece.name))
			switch {
			case piece.fd == C.CUPOOL_BY_FABRIC:
				x.Fabric = name
			case piece.fd == -1:
				x.Name = name
			case piece.fd < 0:
				return faultf(C.CUPOOL_ERROR_INVALID, "a piece of %d bytes has the descriptor %d", uint64(piece.size), int(piece.fd))
			default:
				fd, err := dup(int(piece.fd))
				if err != nil {
					return err
				}
				x.File = os.NewFile(uintptr(fd), "memory")
			}
			r.Pieces = append(r.Pieces, x)
		}
		defer relaxed()()
		at, err := s.ImportRange(r)
		*p = C.uintptr_t(at)
		runtime.KeepAlive(r)
		return err
	})
}

//export cupoolGoUnimport
func cupoolGoUnimport(t *C.thread, ordinal C.int, p C.uintptr_t) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		s, err := g.driver.sharing()
		if err == nil {
			defer relaxed()()
			err = s.CloseRange(ptr(p))
		}
		return err
	})
}
