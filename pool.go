package cupool

import (
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
	isolated, lends bool // PoolConfig.Isolated, PoolConfig.UseOnOOM

	space        heap.Space
	memory       *vmem.Mapper // nil: segments
	budget       budget.Pool
	collectAbove int64 // bytes reserved; 0: no GarbageCollectionThreshold

	sanitizer *sanitize.Pool   // nil: no memory is filled or checked
	guards    *sanitize.Guards // nil: none

	stacks origins.Table
	labels labels
	counts

	closed, retired, asleep atomic.Bool
	held                    atomic.Int64 // by Hold; changed with a heap locked, so that it stands while all are
	asleepBytes             atomic.Int64
}
