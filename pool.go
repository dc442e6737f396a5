package cupool

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/cupool/cupool/internal/budget"
	"github.com/cupool/cupool/internal/heap"
	"github.com/cupool/cupool/internal/origins"
	"github.com/cupool/cupool/internal/sanitize"
	"github.com/cupool/cupool/internal/vmem"
)

// pool is what the parts of a Pool share: facts that are set before use, and what
// guards itself. It has no lock and calls none of the parts. The parts have a *pool and
// the parts below them, never the Pool.
type pool struct {
	dev        *deviceState
	driver     Driver // of the memory
	ownsDriver bool
	ownMemory  bool // the memory comes from functions of the program
	cfg        Config
	log        *slog.Logger // cfg.Logger, for what may come in storms
	id         uint32

	// Of private pools alone:
	name            string
	isolated, lends atomic.Bool // PoolConfig.Isolated, PoolConfig.UseOnOOM

	space        heap.Space
	memory       *vmem.Mapper // nil: segments
	budget       budget.Pool
	tuned        atomic.Pointer[Config] // cfg as Configure has changed it
	collectAbove atomic.Int64           // bytes reserved; 0: no GarbageCollectionThreshold

	sanitizer *sanitize.Pool   // nil: no memory is filled or checked
	guards    *sanitize.Guards // nil: none

	stacks origins.Table
	labels labels
	counts

	closed, retired, asleep atomic.Bool
	resets                  atomic.Uint64 // calls of Reset that ended blocks
	held                    atomic.Int64  // by Hold; changed with a heap locked, so that it stands while all are
	asleepBytes             atomic.Int64
}

func (p *pool) err() error {
	if p.closed.Load() {
		return p.closedError()
	}
	if err := p.dev.lostError(); err != nil {
		return err
	}
	return p.asleepError("allocation")
}

func (p *pool) closedError() error {
	return fmt.Errorf("cupool: allocator on %s: %w", p.driver.Name(), ErrClosed)
}

func (p *pool) asleepError(op string) error {
	return fmt.Errorf("cupool: %s on %s: the allocator is %w; wake it first", op, p.driver.Name(), ErrAsleep)
}

// blockError describes a call on a handle that failed for a reason.
func (p *pool) blockError(op string, b Block, s *Stream, reason error) error {
	e := &BlockError{Op: op, Ptr: b.ptr, Size: b.size, Err: reason, Detail: details[reason]}
	if s != nil {
		e.Stream = s.handle
	}
	return e
}

// holdsMemory reports whether the pool still has memory or addresses of the device.
func (p *pool) holdsMemory() bool {
	return p.budget.Held() > 0 || p.memory != nil && p.memory.Left() || p.guards != nil && p.guards.Left()
}

// quarantineBytes returns how many bytes of a heap stay in quarantine.
func (p *pool) quarantineBytes() int64 { return max(p.sanitizer.Quarantine, 0) }

var details = map[error]string{
	ErrForeignPointer: "the block was allocated by another allocator",
	ErrStaleBlock:     "its memory has been handed out again since; that block was left alone",
	ErrDoubleFree:     "the block was freed before",
	ErrUseAfterFree:   "the block was freed before",
	ErrClosed:         "the allocator is closed",
}
