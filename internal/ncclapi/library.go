package ncclapi

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"unsafe"

	"github.com/cupool/cupool/internal/clib"
	"github.com/cupool/cupool/internal/cudadrv"
)

// A Library is an NCCL that is open. It stays so until the program ends. The calls are
// the same from 2.14 on.
type Library struct {
	version, id, init, state, finalize, destroy, abort, groupStart, groupEnd, text, lastError uintptr
	register, deregister                                                                      uintptr // 0 before 2.19
	calls                                                                                     [len(calls)]uintptr
}

var libraries struct {
	sync.Mutex
	byPath map[string]*Library
}

// Load opens the library at a path, or of a name that the dynamic loader looks
// for, once. It fails with ErrMissing.
func Load(path string) (*Library, error) {
	libraries.Lock()
	defer libraries.Unlock()
	if l := libraries.byPath[path]; l != nil {
		return l, nil
	}
	l, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMissing, err)
	}
	if libraries.byPath == nil {
		libraries.byPath = make(map[string]*Library)
	}
	libraries.byPath[path] = l
	return l, nil
}

func open(path string) (*Library, error) {
	so, err := clib.Open(path)
	if err != nil {
		return nil, err
	}
	l := &Library{register: so.Find("ncclCommRegister"), deregister: so.Find("ncclCommDeregister")}
	for name, fn := range map[string]*uintptr{
		"ncclGetVersion": &l.version, "ncclGetUniqueId": &l.id, "ncclCommInitRankConfig": &l.init,
		"ncclCommGetAsyncError": &l.state, "ncclCommFinalize": &l.finalize, "ncclCommDestroy": &l.destroy,
		"ncclCommAbort": &l.abort, "ncclGroupStart": &l.groupStart, "ncclGroupEnd": &l.groupEnd,
		"ncclGetErrorString": &l.text, "ncclGetLastError": &l.lastError,
		AllReduce.String(): &l.calls[AllReduce], Broadcast.String(): &l.calls[Broadcast], AllGather.String(): &l.calls[AllGather],
		ReduceScatter.String(): &l.calls[ReduceScatter], Send.String(): &l.calls[Send], Recv.String(): &l.calls[Recv],
	} {
		if *fn = so.Find(name); *fn == 0 {
			return nil, fmt.Errorf("%s has no %s", path, name)
		}
	}
	return l, nil
}

// Version returns the library's version, as 10000*major + 100*minor + patch.
func (l *Library) Version() (int, Result) {
	var v int32
	r := Result(clib.Call(l.version, uintptr(unsafe.Pointer(&v))))
	return int(v), r
}

// NewID returns a new ID.
func (l *Library) NewID() (id ID, r Result) {
	r = Result(clib.Call(l.id, uintptr(unsafe.Pointer(&id))))
	return id, r
}

// Text returns NCCL's words for a result.
func (l *Library) Text(r Result) string { return clib.GoString(clib.Call(l.text, uintptr(r))) }

// config is ncclConfig_t as of NCCL 2.17. Newer libraries go by its size and version,
// and older ones read its beginning.
type config struct {
	size                                    uintptr
	magic, version                          uint32
	blocking, clusterSize, minCTAs, maxCTAs int32
	netName                                 uintptr
}

// Init begins to make a rank's communicator for the device of a context. It is
// of use when State is no longer InProgress, and has to be aborted where that is
// an error. It is nil where Init itself fails.
func (l *Library) Init(ctx uintptr, ranks int, id *ID, rank int) (*Comm, Result) {
	const undefined = math.MinInt32
	c := clib.OnHeap(Comm{l: l, ctx: ctx})
	x := clib.OnHeap(struct {
		config config
		id     ID
	}{config{unsafe.Sizeof(config{}), 0xcafebeef, 21700, 0, undefined, undefined, undefined, 0}, *id})
	s := clib.StepOf(l.init, uintptr(unsafe.Pointer(&c.h)), uintptr(ranks))
	next := s.Bytes(2, x.id[:])
	s.Args[next], s.Args[next+1] = uintptr(rank), uintptr(unsafe.Pointer(&x.config))
	s.N = max(s.N, next+2)
	r := run(ctx, s)
	runtime.KeepAlive(x)
	if c.h == 0 {
		return nil, r
	}
	return c, r
}

// A Comm is an ncclComm_t. Its methods must not overlap. Its caller keeps it at least
// while State is InProgress.
type Comm struct {
	l   *Library
	ctx uintptr
	h   uintptr // threads of NCCL read and write it while the communicator is made
}

// State returns the state of the communicator: Success, InProgress or what went
// wrong.
func (c *Comm) State() Result {
	s := [1]clib.Step{clib.StepOf(c.l.state, c.h, 0)}
	s[0].Out(1, 0)
	if r := run(c.ctx, s[:]...); r != Success {
		return r
	}
	return Result(s[0].Value(0))
}

// Run makes calls, as a group where there are several.
func (c *Comm) Run(tasks []Task) Result {
	if len(tasks) == 1 {
		return run(c.ctx, c.task(&tasks[0]))
	}
	var room [8]clib.Step
	steps := append(room[:0], clib.StepOf(c.l.groupStart))
	for i := range tasks {
		steps = append(steps, c.task(&tasks[i]))
	}
	end := clib.StepOf(c.l.groupEnd)
	end.Always = true
	steps = append(steps, end)
	return run(c.ctx, steps...)
}

// task returns a task's call.
func (c *Comm) task(t *Task) clib.Step {
	fn, n := c.l.calls[t.Kind], uintptr(t.Count)
	typ, op, peer := uintptr(t.Type), uintptr(t.Op), uintptr(t.Peer)
	switch t.Kind {
	case AllReduce, ReduceScatter:
		return clib.StepOf(fn, t.Src, t.Dst, n, typ, op, c.h, t.Stream)
	case Broadcast:
		return clib.StepOf(fn, t.Src, t.Dst, n, typ, peer, c.h, t.Stream)
	case AllGather:
		return clib.StepOf(fn, t.Src, t.Dst, n, typ, c.h, t.Stream)
	case Send:
		return clib.StepOf(fn, t.Src, n, typ, peer, c.h, t.Stream)
	}
	return clib.StepOf(fn, t.Dst, n, typ, peer, c.h, t.Stream)
}

// Finalize begins to wait for all calls.
func (c *Comm) Finalize() Result { return run(c.ctx, clib.StepOf(c.l.finalize, c.h)) }

// Destroy gives a communicator back that is finalized. There is no call after it.
func (c *Comm) Destroy() Result { return run(c.ctx, clib.StepOf(c.l.destroy, c.h)) }

// Abort ends a communicator and what it was given. There is no call after it.
func (c *Comm) Abort() Result { return run(c.ctx, clib.StepOf(c.l.abort, c.h)) }

// Register registers memory, for which Deregister takes the handle. It returns
// Missing before NCCL 2.19.
func (c *Comm) Register(p uintptr, size int64) (handle uintptr, r Result) {
	if c.l.register == 0 || c.l.deregister == 0 {
		return 0, Missing
	}
	s := [1]clib.Step{clib.StepOf(c.l.register, c.h, p, uintptr(size), 0)}
	s[0].Out(3, 0)
	r = run(c.ctx, s[:]...)
	return s[0].Value(0), r
}

// Deregister ends a registration.
func (c *Comm) Deregister(handle uintptr) Result {
	return run(c.ctx, clib.StepOf(c.l.deregister, c.h, handle))
}

// LastError returns NCCL's words for what went wrong last, or "".
func (c *Comm) LastError() string { return clib.GoString(clib.Call(c.l.lastError, c.h)) }

// run makes calls in a context, in one crossing, and returns the first failure, or the
// last result: InProgress is no failure.
func run(ctx uintptr, steps ...clib.Step) Result {
	switch r, entered := cudadrv.Run(ctx, int32(InProgress), steps...); {
	case !entered:
		return Driver - Result(r)
	case r != 0:
		return Result(r)
	}
	return Result(steps[len(steps)-1].Err())
}
