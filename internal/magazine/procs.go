package magazine

import (
	"runtime"
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/cupool/cupool/internal/realtime"
	"github.com/cupool/cupool/internal/relaxed"
)

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()

// Procs are the processors (Ps, as Go's scheduler calls them) on which blocks
// have their homes. Who is inside of one is alone with the cached blocks that
// are homed there: the goroutine that runs on it, for a few instructions in
// which it cannot be preempted, or whoever has closed it from elsewhere.
//
// The two keep each other out by Dekker's way: each says that it comes and then
// looks for the other. On amd64 that takes a fence, which would cost as much as
// what it is there to spare. So the goroutine does without one, and who closes
// the processor has the operating system run it on all (membarrier, see
// "Biased Locking in HotSpot" by Dice, Moir and Scherer, 2006, for the idea).
type Procs struct{ list []proc }

// proc is one cache line.
type proc struct {
	busy  relaxed.Uint32 // 1 while the goroutine that runs here is inside
	gate  atomic.Int32   // how many closed it
	plain bool           // barrier works
	_     [55]byte
}

// NewProcs returns as many as the computer or GOMAXPROCS has, whichever is
// more. Goroutines on others, should there be more one day, find no home.
func NewProcs() *Procs {
	p := &Procs{list: make([]proc, max(runtime.NumCPU(), runtime.GOMAXPROCS(0)))}
	for i := range p.list {
		p.list[i].plain = hasBarrier()
	}
	return p
}

// come says that the goroutine, which is pinned there, is inside, and reports
// whether it is: nobody has closed the processor.
func (h *proc) come() bool {
	if h.plain {
		h.busy.SetOwned(1)
	} else {
		h.busy.Store(1)
	}
	return h.gate.Load() == 0
}

// leave says that it is not inside any more.
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
	if len(p.list) > 0 && p.list[0].plain {
		barrier()
	}
	for i := range p.list {
		p.list[i].wait()
	}
}

// wait returns when nobody is inside. That takes a few instructions, unless the
// operating system has taken the processor from who is.
func (h *proc) wait() {
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
