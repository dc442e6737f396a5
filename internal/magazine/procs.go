package magazine

import (
	"runtime"
	"time"

	"github.com/cupool/cupool/internal/atomic"
	"github.com/cupool/cupool/internal/realtime"
	"github.com/cupool/cupool/internal/relaxed"
)

// Procs are the processors (Ps, as Go's scheduler calls them) on which blocks
// have their homes. One goroutine at a time is inside of a processor, and it alone
// changes the cached blocks that are homed there. It is the goroutine that runs on
// the processor, for a few instructions in which it cannot be preempted, or a
// goroutine elsewhere that has closed the processor.
//
// The two exclude each other as in Dekker's algorithm: each announces itself and
// then looks for the other. On amd64 that takes a fence between the two steps, which
// would cost as much as the lock that it replaces. So the goroutine on the processor
// has no fence, and the goroutine that closes it has the operating system execute
// one on all processors (membarrier; the idea is from "Biased Locking in HotSpot" by
// Dice, Moir and Scherer, 2006). Where the operating system refuses that, every
// goroutine fences from then on.
type Procs struct {
	list  []proc
	plain atomic.Bool // goroutines may come without a fence, so close needs the barrier
}

// proc is one cache line.
type proc struct {
	busy  relaxed.Uint32 // 1 while the goroutine that runs here is inside
	gate  atomic.Int32   // how many closed it
	plain atomic.Bool    // a goroutine that comes leaves the fence to barrier
	_     [52]byte
}

// NewProcs returns as many as the computer or GOMAXPROCS has, whichever is
// more. Goroutines on processors beyond these find no homes.
func NewProcs() *Procs {
	p := &Procs{list: make([]proc, max(runtime.NumCPU(), runtime.GOMAXPROCS(0)))}
	p.plain.Store(hasBarrier())
	for i := range p.list {
		p.list[i].plain.Store(hasBarrier())
	}
	return p
}

// come announces the goroutine, which is pinned to the processor, and reports
// whether it is inside: nobody has closed the processor.
func (h *proc) come() bool {
	if h.plain.Load() {
		h.busy.SetOwned(1)
	} else {
		h.busy.Store(1)
	}
	return h.gate.Load() == 0
}

// leave says that the goroutine is not inside any more.
func (h *proc) leave() { h.busy.SetOwned(0) }

// enter goes inside of the processor that the goroutine runs on, keeps it
// there until exit, and returns the processor. It returns -1, with nothing to
// exit, when the processor is closed.
func (p *Procs) enter() int {
	id := procPin()
	if id < len(p.list) {
		if p.list[id].come() {
			return id
		}
		p.list[id].leave()
	}
	procUnpin()
	return -1
}

func (p *Procs) exit(id int) {
	p.list[id].leave()
	procUnpin()
}

// close closes all processors and returns when nobody is inside. Until open,
// the caller is. Several may do so at once, each with a stream's lock, for the
// blocks of that stream.
func (p *Procs) close() {
	p.Shut()
	if p.plain.Load() && !barrier() {
		p.fence()
	}
	for i := range p.list {
		p.list[i].wait()
	}
}

// fence has every goroutine that comes from here on fence, and returns when no
// goroutine is inside that did not. It stops the world once, for some ten
// microseconds: that waits for goroutines that are pinned, and is a barrier for all
// others.
func (p *Procs) fence() {
	for i := range p.list {
		p.list[i].plain.Store(false)
	}
	if !atomic.Invariants || !atomic.StopWorld() {
		runtime.ReadMemStats(new(runtime.MemStats)) // stops the world
	}
	p.plain.Store(false)
}

// wait returns when nobody is inside. That takes a few instructions, unless the
// operating system has suspended the goroutine that is.
func (h *proc) wait() {
	if atomic.Invariants && atomic.AwaitZero(&h.busy.Uint32) {
		return
	}
	for n := 0; h.busy.Load() != 0; n++ {
		runtime.Gosched()
		if n > waitTries {
			realtime.Sleep(waitPause)
		}
	}
}

const (
	waitTries = 256
	waitPause = 20 * time.Microsecond
)

// open opens all processors again.
func (p *Procs) open() {
	for i := range p.list {
		p.list[i].gate.Add(-1)
	}
}

// Shut closes all processors for good, without waiting.
func (p *Procs) Shut() {
	for i := range p.list {
		p.list[i].gate.Add(1)
	}
}
