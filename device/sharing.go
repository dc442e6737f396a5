package device

import (
	"errors"
	"fmt"
	"os"
)

// RangeSharing is the optional part of a device whose memory other processes of the
// computer can map. Its methods are safe from several goroutines.
type RangeSharing interface {
	// ExportRange describes n bytes at p, inside one allocation or whole mappings.
	// The caller closes it. It fails with ErrNotSupported where the memory was not
	// made so that it can be exported, and with ErrInvalidRange.
	ExportRange(p Ptr, n int64) (SharedRange, error)
	// ImportRange maps another process's memory and returns the address of the
	// range. The caller closes r, also when it fails. It fails with
	// ErrInvalidRange where the pieces are not what they are said to be.
	ImportRange(r SharedRange) (Ptr, error)
	// CloseRange unmaps what ImportRange returned. No work may use it any more. It
	// fails with ErrInvalidRange for any other address.
	CloseRange(p Ptr) error
}

// SharedRange is a range of a device's memory on its way to another process.
type SharedRange struct {
	Skip   int64 // bytes of the pieces before the range
	Size   int64 // bytes of the range
	Pieces []SharedPiece
}

// SharedPiece is physical memory, which can be mapped as a whole only.
type SharedPiece struct {
	Size int64    // bytes
	File *os.File // nil: by Fabric or Name
	Name [64]byte // where the device gives names and no files (CUDA's IPC handles)
	// Fabric is a handle that processes of other computers may open, too, or zeros. Memory
	// with one has a File as well; it is imported by Fabric where there is no File.
	Fabric [64]byte
}

// Close closes the files of the pieces.
func (r *SharedRange) Close() error {
	var errs []error
	for _, p := range r.Pieces {
		if p.File != nil {
			errs = append(errs, p.File.Close())
		}
	}
	r.Pieces = nil
	return errors.Join(errs...)
}

// Total returns the bytes of all pieces. It fails with ErrInvalidRange where the range
// is not inside them, or a size is none.
func (r *SharedRange) Total() (total int64, err error) {
	const most = 1 << 47 // bytes: as many as there are addresses
	for _, p := range r.Pieces {
		if p.Size <= 0 || p.Size > most-total {
			return 0, fmt.Errorf("%w: a piece of %d bytes", ErrInvalidRange, p.Size)
		}
		total += p.Size
	}
	if r.Skip < 0 || r.Size <= 0 || r.Skip > total || r.Size > total-r.Skip {
		return 0, fmt.Errorf("%w: %d bytes at %d of memory of %d bytes", ErrInvalidRange, r.Size, r.Skip, total)
	}
	return total, nil
}
