package replay

import (
	"fmt"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/trace"
)

// checker gives every block contents of its own and looks whether they are
// still there when the block is freed. Two live blocks that share memory
// destroy each other's.
//
// On a device that is not the host's memory all bytes of a block are
// written, which costs a launch, and samples of every 16th block are read,
// because that waits. On the host only the samples are written, so that a
// trace of a large device takes little of the host's memory, and all are
// read.
type checker struct {
	driver  cupool.Driver
	streams []cupool.StreamHandle // by block: where its contents were written
	sparse  bool                  // write and read samples only
	every   uint32                // read each so many blocks
	checked int64
	buf     []byte
}

// Samples of a block: its ends, and a piece at each multiple of the
// granularity of virtual memory, where one handle may follow another.
const (
	edgeBytes  = 4096
	stepBytes  = 2 << 20
	pieceBytes = 512
	maxPieces  = 64
)

func newChecker(d cupool.Driver, t *trace.Trace) *checker {
	c := &checker{driver: d, streams: make([]cupool.StreamHandle, t.Blocks), sparse: d.HostAccessible(), every: 16, buf: make([]byte, edgeBytes)}
	if c.sparse {
		c.every = 1
	}
	return c
}

// pattern is the byte that fills a block: neighbours in order of allocation
// differ, and none is 0, which fresh memory holds.
func pattern(id uint32) byte { return byte(id*167%255 + 1) }

// pieces calls fn for the samples of a block.
func pieces(b cupool.Block, fn func(p cupool.Ptr, n int64) error) error {
	start, end := b.Ptr(), b.Ptr()+cupool.Ptr(b.Size())
	if err := fn(start, min(edgeBytes, b.Size())); err != nil || b.Size() <= edgeBytes {
		return err
	}
	step := max(stepBytes, (b.Size()/maxPieces+stepBytes-1)/stepBytes*stepBytes)
	for p := (start/stepBytes + 1) * stepBytes; p+pieceBytes <= end; p += cupool.Ptr(step) {
		if err := fn(p, pieceBytes); err != nil {
			return err
		}
	}
	return fn(end-edgeBytes, edgeBytes)
}

func (c *checker) fill(id uint32, b cupool.Block, s *cupool.Stream) error {
	if b.IsEmpty() {
		return nil
	}
	c.streams[id] = s.Handle()
	if !c.sparse {
		return c.driver.Memset(b.Ptr(), pattern(id), b.Size(), s.Handle())
	}
	return pieces(b, func(p cupool.Ptr, n int64) error {
		return c.driver.Memset(p, pattern(id), n, s.Handle())
	})
}

func (c *checker) verify(id uint32, b cupool.Block) error {
	if b.IsEmpty() || id%c.every != 0 {
		return nil
	}
	c.checked++
	return pieces(b, func(p cupool.Ptr, n int64) error {
		got := c.buf[:n]
		if err := c.driver.CopyOut(got, p, c.streams[id]); err != nil {
			return err
		}
		for i, v := range got {
			if v != pattern(id) {
				return fmt.Errorf("block %d (%v): byte %d is 0x%02x, not 0x%02x: its memory was written by another",
					id, b, int64(p-b.Ptr())+int64(i), v, pattern(id))
			}
		}
		return nil
	})
}
