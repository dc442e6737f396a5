package nccl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/internal/ncclapi"
	"github.com/cupool/cupool/internal/testkit/commtest"
	"github.com/cupool/cupool/internal/testkit/handletest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// answers are what calls return in turn, by name, and the last of them from then on;
// none: Success.
type answers map[string][]ncclapi.Result

// script is an NCCL with one communicator. It notes the calls, and a test says what
// they return.
type script struct {
	answers answers
	version int
	noInit  bool // Init makes no communicator

	mu    sync.Mutex
	there func() // is called when a call's work is in its stream; nil: nothing
	calls []string
	tasks []ncclapi.Task // of the last Run
}

func (x *script) answer(call string) ncclapi.Result {
	x.mu.Lock()
	defer x.mu.Unlock()
	left := x.answers[call]
	if len(left) == 0 {
		return ncclapi.Success
	}
	if len(left) > 1 {
		x.answers[call] = left[1:]
	}
	return left[0]
}

// set changes what calls return.
func (x *script) set(a answers) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answers = a
}

// note notes a call but for State, which is made at any time.
func (x *script) note(call string, args ...any) ncclapi.Result {
	x.mu.Lock()
	x.calls = append(x.calls, fmt.Sprint(append([]any{call}, args...)...))
	x.mu.Unlock()
	return x.answer(call)
}

// made returns the calls since it was asked last.
func (x *script) made() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	defer func() { x.calls = nil }()
	return x.calls
}

func (x *script) Version() (int, ncclapi.Result)           { return x.version, x.note("Version") }
func (x *script) NewID() (ncclapi.ID, ncclapi.Result)      { return ncclapi.ID{7}, x.note("NewID") }
func (x *script) Text(r ncclapi.Result) string             { return fmt.Sprint("text of ", int(r)) }
func (x *script) LastError() string                        { return "last words" }
func (x *script) Finalize() ncclapi.Result                 { return x.note("Finalize") }
func (x *script) Destroy() ncclapi.Result                  { return x.note("Destroy") }
func (x *script) Abort() ncclapi.Result                    { return x.note("Abort") }
func (x *script) Deregister(handle uintptr) ncclapi.Result { return x.note("Deregister", handle) }

func (x *script) State() ncclapi.Result { return x.arrives(x.answer("State")) }

// arrives calls what onArrival set for a call of NCCL that is done.
func (x *script) arrives(r ncclapi.Result) ncclapi.Result {
	x.mu.Lock()
	defer x.mu.Unlock()
	if r == ncclapi.Success && x.there != nil {
		x.there()
	}
	return r
}

// onArrival has f called when a call's work is in its stream.
func (x *script) onArrival(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.there = f
}

func (x *script) Init(ctx uintptr, ranks int, id *ncclapi.ID, rank int) (communicator, ncclapi.Result) {
	r := x.note("Init", ctx, " ", ranks, " ", id[0], " ", rank)
	if x.noInit {
		return nil, r
	}
	return x, r
}

func (x *script) Run(tasks []ncclapi.Task) ncclapi.Result {
	x.tasks = slices.Clone(tasks)
	return x.arrives(x.note("Run", len(tasks)))
}

func (x *script) Register(p uintptr, size int64) (uintptr, ncclapi.Result) {
	return p + 1, x.note("Register", p, " ", size)
}

// A scripted is a rank, 1 of 3 or one alone, of a script.
type scripted struct {
	*Comm
	nccl  *script
	stale cupool.Block // that was freed
	d     *pooltest.Driver
	s     *cupool.Stream
	b     cupool.Block
	m     dist.Memory // 12 elements at the beginning of b
}

// play calls f with a rank whose NCCL answers as r.nccl.set says, where time is what is slept.
func play(t *testing.T, cfg Config, f func(t *testing.T, r *scripted)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		pool, d := pooltest.New(t, 1<<30)
		r := &scripted{nccl: &script{}, d: d}
		cfg.Size = cmp.Or(cfg.Size, 3)
		cfg.Rank = min(1, cfg.Size-1)
		var err error
		r.Comm, err = begin(t.Context(), pool, 5, r.nccl, cfg.withDefaults(), func(_ context.Context, draw func() ([]byte, error)) ([]byte, error) { return draw() })
		require.NoError(t, err)
		require.Equal(t, []string{"NewID", fmt.Sprint("Init5 ", cfg.Size, " 7 ", cfg.Rank)}, r.nccl.made())
		r.s, r.b = pooltest.NewStream(t, pool), pooltest.Alloc(t, pool, 1000, nil)
		r.m = dist.Memory{Ptr: r.b.Ptr(), Count: 12, Type: dist.Int64}
		r.stale = pooltest.Alloc(t, pool, 1000, nil)
		require.NoError(t, pool.Free(r.stale))
		defer func() { _ = r.Abort() }()
		f(t, r)
		d.Idle(r.s)
		require.NoError(t, pool.Free(r.b))
		require.NoError(t, pool.Close())
	})
}

// part returns count elements of r.m from at on.
func (r *scripted) part(at, count int) dist.Memory {
	m := r.m
	m.Ptr += cupool.Ptr(8 * at)
	m.Count = count
	return m
}

func (r *scripted) sum() error { return r.AllReduce(r.m, r.m, dist.Sum, r.s) }

// What errors say at their end.
const (
	lateText   = "ncclTimeout (other ranks did not come in time): rank not there, context deadline exceeded; see whether all ranks run and make the same calls, or raise Config.Timeout"
	systemText = "ncclSystemError (text of 2: last words); see the network and /dev/shm; NCCL_DEBUG=WARN tells more"
	remoteText = "ncclRemoteError (text of 6: last words): rank not there; another rank is gone, whose own error says why; close this Comm and make a new one"
	usageText  = "; see that each rank has a GPU of its own, and that all make the same calls with the same counts"
)

// progress is a call that is done after n looks.
func progress(n int, end ncclapi.Result) []ncclapi.Result {
	return append(slices.Repeat([]ncclapi.Result{ncclapi.InProgress}, n), end)
}

// TestResults has each call of NCCL fail at once or later, or take its time.
func TestResults(t *testing.T) {
	const timeout = 2 * time.Second
	group := func(r *scripted) error { return r.Group(func() error { return commtest.First(r.sum(), r.sum()) }) }
	register := func(r *scripted) error { return r.Register(r.b) }
	registered := func(f func(r *scripted) error) func(r *scripted) error {
		return func(r *scripted) error { return commtest.First(register(r), f(r)) }
	}
	deregister := registered(func(r *scripted) error { return r.Deregister(r.b) })
	closing := func(r *scripted) error { return r.Close() }
	const registers, deregisters = "Register1099511627776 1000", "Deregister1099511627777"
	for name, tc := range map[string]struct {
		answers answers
		f       func(r *scripted) error
		made    []string
		err     string        // "": none
		took    time.Duration // at least, and a moment more at most
		over    bool          // all later calls fail with the error
	}{
		"call":                {nil, (*scripted).sum, []string{"Run1"}, "", 0, false},
		"call fails":          {answers{"Run": {ncclapi.SystemError}}, (*scripted).sum, []string{"Run1", "Abort"}, "ncclAllReduce: " + systemText, 0, true},
		"call soon":           {answers{"Run": {ncclapi.InProgress}, "State": progress(3, ncclapi.Success)}, (*scripted).sum, []string{"Run1"}, "", 0, false},
		"call later":          {answers{"Run": {ncclapi.InProgress}, "State": progress(500, ncclapi.Success)}, (*scripted).sum, []string{"Run1"}, "", 300 * time.Millisecond, false},
		"call soon fails":     {answers{"Run": {ncclapi.InProgress}, "State": progress(3, ncclapi.RemoteError)}, (*scripted).sum, []string{"Run1", "Abort"}, "ncclAllReduce: " + remoteText, 0, true},
		"call later fails":    {answers{"Run": {ncclapi.InProgress}, "State": progress(500, ncclapi.SystemError)}, (*scripted).sum, []string{"Run1", "Abort"}, "ncclAllReduce: " + systemText, 300 * time.Millisecond, true},
		"call is late":        {answers{"Run": {ncclapi.InProgress}, "State": {ncclapi.InProgress}}, (*scripted).sum, []string{"Run1", "Abort"}, "ncclAllReduce: " + lateText, timeout, true},
		"group":               {answers{"Run": {ncclapi.InProgress}, "State": progress(3, ncclapi.Success)}, group, []string{"Run2"}, "", 0, false},
		"group fails":         {answers{"Run": {ncclapi.InvalidArgument}}, group, []string{"Run2", "Abort"}, "ncclGroupEnd: ncclInvalidArgument (text of 4: last words)" + usageText, 0, true},
		"group later fails":   {answers{"Run": {ncclapi.InProgress}, "State": progress(3, ncclapi.InvalidUsage)}, group, []string{"Run2", "Abort"}, "ncclGroupEnd: ncclInvalidUsage (text of 5: last words)" + usageText, 0, true},
		"register":            {nil, registered(register), []string{registers}, "", 0, false},
		"register is missing": {answers{"Register": {ncclapi.Missing}}, register, []string{registers}, "ncclCommRegister: NCCL result -1 (it needs NCCL 2.19 or newer): not supported; NCCL_DEBUG=WARN in the environment tells more", 0, false},
		"register fails":      {answers{"Register": {ncclapi.Driver - 2}}, register, []string{registers, "Abort"}, "ncclCommRegister: CUDA error 2 (text of -1002: last words); NCCL_DEBUG=WARN in the environment tells more", 0, true},
		"deregister":          {nil, deregister, []string{registers, deregisters}, "", 0, false},
		"deregister fails":    {answers{"Deregister": {ncclapi.SystemError}}, deregister, []string{registers, deregisters, "Abort"}, "ncclCommDeregister: " + systemText, 0, true},
		"deregister nothing":  {nil, func(r *scripted) error { return r.Deregister(r.b) }, nil, "deregister block at 0x10000000000: foreign pointer: it is not registered", 0, false},
		"register stale":      {nil, func(r *scripted) error { return r.Register(r.stale) }, nil, "register block at 0x10000000400: cupool: look-up of 0x10000000400: use after free: no block is live there", 0, false},
		"register old": {nil, func(r *scripted) error {
			heir, err := r.pool.Alloc(r.stale.Size(), nil) // at the same place
			defer func() { _ = r.pool.Free(heir) }()
			return commtest.First(err, r.Register(r.stale))
		}, nil, "register block at 0x10000000400: use after free", 0, false},
		"group of nothing": {nil, func(r *scripted) error { return r.Group(nil) }, nil, "Group has no function: invalid handle", 0, false},
		"aborted beside": {answers{"Run": {ncclapi.InProgress}, "State": {ncclapi.InProgress}}, func(r *scripted) error {
			time.AfterFunc(timeout/4, func() { _ = r.Abort() })
			return r.sum()
		}, []string{"Run1", "Abort"}, "closed", timeout / 4, false},
		"state":                   {answers{"State": {ncclapi.InProgress}}, func(r *scripted) error { return r.Err() }, nil, "", 0, false},
		"state fails":             {answers{"State": {ncclapi.SystemError}}, func(r *scripted) error { return r.Err() }, []string{"Abort"}, "ncclCommGetAsyncError: " + systemText, 0, true},
		"close":                   {nil, registered(closing), []string{registers, deregisters, "Finalize", "Destroy"}, "", 0, false},
		"close later":             {answers{"Finalize": {ncclapi.InProgress}, "State": progress(500, ncclapi.Success), "Destroy": {ncclapi.InProgress}}, closing, []string{"Finalize", "Destroy"}, "", 300 * time.Millisecond, false},
		"close is late":           {answers{"Finalize": {ncclapi.InProgress}, "State": {ncclapi.InProgress}}, closing, []string{"Finalize", "Abort"}, "ncclCommFinalize: " + lateText, timeout, true},
		"close fails":             {answers{"Finalize": {ncclapi.SystemError}}, closing, []string{"Finalize", "Abort"}, "ncclCommFinalize: " + systemText, 0, true},
		"close does not destroy":  {answers{"Destroy": {ncclapi.SystemError}}, closing, []string{"Finalize", "Destroy"}, "ncclCommDestroy: ncclSystemError (text of 2); see the network and /dev/shm; NCCL_DEBUG=WARN tells more", 0, false},
		"close cannot deregister": {answers{"Deregister": {ncclapi.SystemError}}, registered(closing), []string{registers, deregisters, "Abort"}, "ncclCommDeregister: " + systemText, 0, true},
		"abort":                   {answers{"Abort": {ncclapi.InProgress}}, func(r *scripted) error { return r.Abort() }, []string{"Abort"}, "", 0, false},
		"abort fails":             {answers{"Abort": {ncclapi.SystemError}}, func(r *scripted) error { return r.Abort() }, []string{"Abort"}, "ncclCommAbort: ncclSystemError (text of 2); see the network and /dev/shm; NCCL_DEBUG=WARN tells more", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{Timeout: timeout}, func(t *testing.T, r *scripted) {
				r.nccl.set(tc.answers)
				began := time.Now()
				err := tc.f(r)
				require.GreaterOrEqual(t, time.Since(began), tc.took)
				require.Less(t, time.Since(began), tc.took+150*time.Millisecond)
				require.Equal(t, tc.made, r.nccl.made())
				if tc.err == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, "nccl: rank 1 of 3: "+tc.err)
				}
				if r.closed {
					require.NoError(t, r.Abort())
					require.Empty(t, r.nccl.made())
				}
				if !tc.over {
					return
				}
				for call, again := range map[string]error{"Err": r.Err(), "call": r.sum(), "group": group(r), "register": r.Register(r.b), "deregister": r.Deregister(r.b)} {
					require.Same(t, err, again, call)
				}
				if again := r.Close(); !errors.Is(again, cupool.ErrClosed) {
					require.Same(t, err, again)
				}
				require.EqualError(t, r.Close(), "nccl: rank 1 of 3: closing: closed")
				require.NoError(t, r.Abort())
				require.Empty(t, r.nccl.made())
			})
		})
	}
}

// TestTasks has what each call asks of NCCL, and no call of those that cannot be made.
func TestTasks(t *testing.T) {
	play(t, Config{}, func(t *testing.T, r *scripted) {
		at := func(element int) uintptr { return uintptr(r.b.Ptr()) + uintptr(8*element) }
		own, def := uintptr(r.s.Handle()), uintptr(r.pool.DefaultStream().Handle())
		a, b, long := r.part(0, 3), r.part(3, 3), r.part(3, 9)
		for name, tc := range map[string]struct {
			f    func() error
			want ncclapi.Task
		}{
			"AllReduce":      {func() error { return r.AllReduce(b, a, dist.Max, r.s) }, ncclapi.Task{Kind: ncclapi.AllReduce, Dst: at(3), Src: at(0), Count: 3, Op: ncclapi.Max, Stream: own}},
			"default stream": {func() error { return r.AllReduce(a, a, dist.Min, nil) }, ncclapi.Task{Kind: ncclapi.AllReduce, Dst: at(0), Src: at(0), Count: 3, Op: ncclapi.Min, Stream: def}},
			"Broadcast":      {func() error { return r.Broadcast(b, a, 1, r.s) }, ncclapi.Task{Kind: ncclapi.Broadcast, Dst: at(3), Src: at(0), Count: 3, Peer: 1, Stream: own}},
			"another's":      {func() error { return r.Broadcast(b, dist.Memory{}, 2, r.s) }, ncclapi.Task{Kind: ncclapi.Broadcast, Dst: at(3), Src: at(3), Count: 3, Peer: 2, Stream: own}},
			"AllGather":      {func() error { return r.AllGather(long, a, r.s) }, ncclapi.Task{Kind: ncclapi.AllGather, Dst: at(3), Src: at(0), Count: 3, Stream: own}},
			"ReduceScatter":  {func() error { return r.ReduceScatter(a, long, dist.Prod, r.s) }, ncclapi.Task{Kind: ncclapi.ReduceScatter, Dst: at(0), Src: at(3), Count: 3, Op: ncclapi.Prod, Stream: own}},
			"Send":           {func() error { return r.Send(a, 0, r.s) }, ncclapi.Task{Kind: ncclapi.Send, Src: at(0), Count: 3, Stream: own}},
			"Recv":           {func() error { return r.Recv(b, 2, r.s) }, ncclapi.Task{Kind: ncclapi.Recv, Dst: at(3), Count: 3, Peer: 2, Stream: own}},
			"nothing":        {func() error { return r.Send(dist.Memory{Type: dist.Int64}, 2, r.s) }, ncclapi.Task{Kind: ncclapi.Send, Peer: 2, Stream: own}},
		} {
			tc.want.Type = ncclapi.Int64
			require.NoError(t, tc.f(), name)
			require.Equal(t, []ncclapi.Task{tc.want}, r.nccl.tasks, name)
		}
		for of, want := range map[dist.Type]int64{dist.Float32: ncclapi.Float32, dist.Float64: ncclapi.Float64, dist.Int32: ncclapi.Int32, dist.Uint8: ncclapi.Uint8} {
			m := r.m
			m.Type = of
			require.NoError(t, r.AllReduce(m, m, dist.Sum, r.s))
			require.Equal(t, want, r.nccl.tasks[0].Type)
			require.EqualValues(t, ncclapi.Sum, r.nccl.tasks[0].Op)
			m.Type = dist.Float64
			require.NoError(t, r.AllReduce(m, m, dist.Avg, r.s))
			require.EqualValues(t, ncclapi.Avg, r.nccl.tasks[0].Op)
		}
		require.NotEmpty(t, r.nccl.made())

		bytes, none, negative, foreign := a, a, a, a
		bytes.Type, none.Type, negative.Count, foreign.Ptr = dist.Uint8, dist.Uint8+1, -3, 8
		closed := pooltest.NewStream(t, r.pool)
		require.NoError(t, closed.Close())
		other, _ := pooltest.New(t, 1<<30)
		for want, err := range map[string]error{
			"ncclAllReduce: operation 5: ":                                          r.AllReduce(a, a, dist.Avg+1, r.s),
			"ncclReduceScatter: operation -1: ":                                     r.ReduceScatter(a, long, -1, r.s),
			"ncclAllReduce: the average of ":                                        r.AllReduce(a, a, dist.Avg, r.s),
			"ncclBroadcast: rank 3: ":                                               r.Broadcast(a, b, 3, r.s),
			"ncclSend: rank -1: ":                                                   r.Send(a, -1, r.s),
			"ncclRecv: rank 3: ":                                                    r.Recv(a, 3, r.s),
			"ncclAllReduce: 3 elements of type 4 from 9 of type 4, 3 ranks: ":       r.AllReduce(a, long, dist.Sum, r.s),
			"ncclAllReduce: 3 elements of type 5 from 3 of type 4, 3 ranks: ":       r.AllReduce(bytes, a, dist.Sum, r.s),
			"ncclBroadcast: 9 elements of type 4 from 3 of type 4, 3 ranks: ":       r.Broadcast(long, a, 1, r.s),
			"ncclAllGather: 9 elements of type 4 from 9 of type 4, 3 ranks: ":       r.AllGather(long, long, r.s),
			"ncclAllGather: 8 elements of type 4 from 2 of type 4, 3 ranks: ":       r.AllGather(r.part(0, 8), r.part(8, 2), r.s),
			"ncclReduceScatter: 2 elements of type 4 from 8 of type 4, 3 ranks: ":   r.ReduceScatter(r.part(8, 2), r.part(0, 8), dist.Sum, r.s),
			"ncclSend: elements of Type(6): not supported":                          r.Send(none, 0, r.s),
			"ncclRecv: elements of Type(0): not supported":                          r.Recv(dist.Memory{Ptr: a.Ptr, Count: 3}, 0, r.s),
			"ncclSend: -3 elements: ":                                               r.Send(negative, 0, r.s),
			"ncclSend: memory at 0x8: ":                                             r.Send(foreign, 0, r.s),
			"ncclAllReduce: memory at 0x8: ":                                        r.AllReduce(foreign, a, dist.Sum, r.s),
			"ncclAllReduce: src at 0x8: ":                                           r.AllReduce(a, foreign, dist.Sum, r.s),
			"ncclReduceScatter: src at 0x10000000000: dist: 150 int64 elements":     r.ReduceScatter(r.part(0, 50), r.part(0, 150), dist.Sum, r.s),
			"ncclSend: cupool: record stream":                                       r.Send(dist.Memory{Type: dist.Int64}, 0, other.DefaultStream()),
			"ncclRecv: memory at 0x10000000000: cupool: copy on stream 0x4: closed": r.Recv(r.part(0, 1), 0, closed),
		} {
			require.ErrorContains(t, err, "nccl: rank 1 of 3: "+want)
		}
		require.Empty(t, r.nccl.made())
		require.NoError(t, r.Err())
		require.NoError(t, other.Close())
	})
	play(t, Config{Size: 1}, func(t *testing.T, r *scripted) {
		m := r.m
		m.Type = dist.Float64
		for op, want := range map[dist.Op]int64{dist.Avg: ncclapi.Sum, dist.Max: ncclapi.Max} {
			require.NoError(t, r.AllReduce(m, m, op, r.s))
			require.Equal(t, want, r.nccl.tasks[0].Op, op)
		}
	})
}

// TestGroups has what goes together.
func TestGroups(t *testing.T) {
	stop := errors.New("stop")
	for name, tc := range map[string]struct {
		want []string // the calls
		err  error
		f    func(r *scripted, send func(n int) error) error
	}{
		"one":     {[]string{"Run1"}, nil, func(_ *scripted, send func(int) error) error { return send(1) }},
		"several": {[]string{"Run3"}, nil, func(_ *scripted, send func(int) error) error { return send(3) }},
		"none":    {nil, nil, func(*scripted, func(int) error) error { return nil }},
		"fails":   {nil, stop, func(_ *scripted, send func(int) error) error { return errors.Join(send(2), stop) }},
		"in each other": {[]string{"Run6"}, nil, func(r *scripted, send func(int) error) error {
			return errors.Join(send(1), r.Group(func() error { return errors.Join(send(2), r.Group(func() error { return send(1) })) }), send(2))
		}},
		"the inner one fails": {[]string{"Run3"}, nil, func(r *scripted, send func(int) error) error {
			return errors.Join(send(1), pooltest.Ignore(r.Group(func() error { return errors.Join(send(1), stop) }), stop), send(2))
		}},
		"the inner one panics": {[]string{"Run2"}, nil, func(r *scripted, send func(int) error) error {
			if pooltest.PanicOf(func() { _ = r.Group(func() error { panic(errors.Join(send(2), stop)) }) }) == nil {
				return stop
			}
			return send(2)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{}, func(t *testing.T, r *scripted) {
				for range 2 {
					err := r.Group(func() error {
						return tc.f(r, func(n int) error {
							for range n {
								if err := r.sum(); err != nil {
									return err
								}
							}
							return nil
						})
					})
					require.ErrorIs(t, err, tc.err)
					require.Equal(t, tc.want, r.nccl.made())
					require.NoError(t, r.sum())
					require.Equal(t, []string{"Run1"}, r.nccl.made())
				}
			})
		})
	}
}

// TestWatch: work that is not done in time ends the rank, with nobody asking. Its time
// counts from the call.
func TestWatch(t *testing.T) {
	const moment = time.Millisecond / 4
	for _, tc := range []struct{ timeout, ends time.Duration }{
		{4 * time.Millisecond, 4 * time.Millisecond},
		{time.Second, time.Second},
		{10 * time.Second, 10 * time.Second},
		{0, DefaultTimeout},
		{-1, 2 * DefaultTimeout}, // never
	} {
		for _, inTime := range []bool{false, true} {
			t.Run(fmt.Sprint(tc.timeout, " in time: ", inTime), func(t *testing.T) {
				play(t, Config{Timeout: tc.timeout}, func(t *testing.T, r *scripted) {
					handles := r.d.Handles()
					r.d.Busy(r.s)
					require.NoError(t, r.sum())
					time.Sleep(tc.ends - moment)
					require.Equal(t, []string{"Run1"}, r.nccl.made())
					require.NoError(t, r.Err())
					require.Equal(t, handles+1, r.d.Handles(), "an event")
					if inTime {
						r.d.Idle(r.s)
					}
					time.Sleep(2 * moment)
					if inTime || tc.timeout < 0 {
						require.NoError(t, r.Err())
						return
					}
					require.Equal(t, []string{"Abort"}, r.nccl.made())
					require.EqualValues(t, ncclapi.TimedOut, r.Err().(*Error).Code)
					require.EqualError(t, r.Err(), fmt.Sprintf("nccl: rank 1 of 3: work in a stream: ncclTimeout (not done after %v): rank not there, context deadline exceeded; see whether all ranks run and make the same calls, or raise Config.Timeout", r.cfg.Timeout))
				})
			})
		}
	}
}

// TestWatchWaits: a mark before the work is in its stream is no mark of it.
func TestWatchWaits(t *testing.T) {
	for name, call := range map[string]func(r *scripted) error{
		"in progress": func(r *scripted) error {
			r.nccl.set(answers{"Run": {ncclapi.InProgress}, "State": progress(500, ncclapi.Success)})
			r.nccl.onArrival(func() { r.d.Busy(r.s) }) // as the others do not come
			return r.sum()
		},
		"in a group": func(r *scripted) error {
			return r.Group(func() error {
				defer r.nccl.onArrival(func() { r.d.Busy(r.s) })
				defer time.Sleep(2*lookEvery + lookEvery/2) // ends between two looks
				return r.sum()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{Timeout: 2 * time.Second}, func(t *testing.T, r *scripted) {
				began := time.Now()
				require.NoError(t, call(r))
				require.Greater(t, time.Since(began), lookEvery)
				r.nccl.onArrival(nil)
				time.Sleep(3 * time.Second)
				require.ErrorIs(t, r.Err(), dist.ErrRank)
			})
		})
	}
}

// TestWatchOfFullStream: where the device waits for a stream that is full before it takes an event, work
// that is late is seen all the same.
func TestWatchOfFullStream(t *testing.T) {
	play(t, Config{Timeout: 2 * time.Second}, func(t *testing.T, r *scripted) {
		r.nccl.onArrival(func() { r.d.Busy(r.s) }) // as the others do not come
		require.NoError(t, r.sum())
		room := make(chan struct{})
		r.d.Hook = func(call string) {
			if call == "RecordEvent" {
				<-room
			}
		}
		require.NoError(t, r.sum())
		time.Sleep(3 * time.Second)
		err := r.Err()
		close(room) // as Abort ends the work
		require.ErrorIs(t, err, dist.ErrRank)
		require.ErrorIs(t, r.Close(), dist.ErrRank)
	})
}

// TestWatchOfOthers: what others queue behind a call is not its work. Of the calls between two
// looks this is known of the first alone.
func TestWatchOfOthers(t *testing.T) {
	between := func() { time.Sleep(2*lookEvery + lookEvery/3) } // twice that is no time of a look either
	both := func(r *scripted) error { return r.Group(func() error { return commtest.First(r.sum(), r.sum()) }) }
	for name, tc := range map[string]struct {
		calls func(r *scripted) error
		late  bool
	}{
		"a call":       {(*scripted).sum, false},
		"a group":      {both, false},
		"a look later": {func(r *scripted) error { err := both(r); between(); return commtest.First(err, r.sum()) }, false},
		"two calls":    {func(r *scripted) error { return commtest.First(r.sum(), r.sum()) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{Timeout: 2 * time.Second}, func(t *testing.T, r *scripted) {
				between()
				handles := r.d.Handles()
				require.NoError(t, tc.calls(r))
				r.d.Busy(r.s) // others' work
				time.Sleep(4 * time.Second)
				require.Equal(t, tc.late, r.Err() != nil)
				require.LessOrEqual(t, r.d.Handles()-handles, 2, "events")
			})
		})
	}
}

// TestCloseAfterCalls: Close waits for the work of all calls since the watch looked, too.
func TestCloseAfterCalls(t *testing.T) {
	play(t, Config{Timeout: 2 * time.Second}, func(t *testing.T, r *scripted) {
		require.NoError(t, r.sum())
		r.nccl.onArrival(func() { r.d.Busy(r.s) }) // as the others do not come
		require.NoError(t, r.sum())
		require.ErrorIs(t, r.Close(), dist.ErrRank)
	})
}

// TestWatchEnds: what the watch keeps goes back, and Close waits for the work that it knows.
func TestWatchEnds(t *testing.T) {
	const moment = 300 * time.Millisecond // the watch looks meanwhile
	broken := errors.New("broken")
	for name, tc := range map[string]struct {
		f    func(r *scripted) error
		took time.Duration
		err  string
	}{
		"done":    {func(r *scripted) error { r.d.Idle(r.s); time.Sleep(moment); return nil }, moment, ""},
		"aborted": {func(r *scripted) error { defer synctest.Wait(); return r.Abort() }, 0, ""},
		"closed": {func(r *scripted) error {
			time.AfterFunc(moment, func() { r.d.Idle(r.s) })
			return r.Close()
		}, moment, ""},
		"closed late": {func(r *scripted) error { return r.Close() }, 2 * time.Second, "nccl: rank 1 of 3: closing: work in a stream: " + lateText},
		"failed, closed": {func(r *scripted) error {
			r.nccl.set(answers{"State": {ncclapi.SystemError}})
			time.Sleep(moment)
			return r.Close()
		}, moment, "nccl: rank 1 of 3: ncclCommGetAsyncError: " + systemText},
		"the device fails": {func(r *scripted) error {
			r.d.Fail("QueryEvent", broken)
			defer r.d.Fail("QueryEvent", nil)
			time.Sleep(moment)
			return nil
		}, moment, ""},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, Config{Timeout: 2 * time.Second}, func(t *testing.T, r *scripted) {
				handles := r.d.Handles()
				r.d.Busy(r.s)
				require.NoError(t, r.sum())
				time.Sleep(moment)
				require.Equal(t, handles+1, r.d.Handles())
				began := time.Now()
				err := tc.f(r)
				if tc.err == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, tc.err)
				}
				require.InDelta(t, tc.took, time.Since(began), float64(2*time.Millisecond))
				r.mu.Lock()
				require.Empty(t, r.marks)
				r.mu.Unlock()
				event, err := r.s.Record() // the pool keeps what goes back, for the next
				require.NoError(t, err)
				require.Equal(t, handles+1, r.d.Handles())
				require.NoError(t, event.Close())
			})
		})
	}
	// Before the watch has looked:
	play(t, Config{}, func(t *testing.T, r *scripted) {
		r.d.Busy(r.s)
		require.NoError(t, r.sum())
		began := time.Now()
		time.AfterFunc(moment, func() { r.d.Idle(r.s) })
		require.NoError(t, r.Close())
		require.InDelta(t, moment, time.Since(began), float64(2*time.Millisecond))
	})
	play(t, Config{}, func(t *testing.T, r *scripted) {
		r.d.Busy(r.s)
		require.NoError(t, r.sum())
		handles := r.d.Handles()
		require.NoError(t, r.Abort())
		synctest.Wait()
		event, err := r.s.Record()
		require.NoError(t, err)
		require.Equal(t, handles, r.d.Handles())
		require.NoError(t, event.Close())
	})
}

// TestStopped: the process gets no processor until the Timeout is over. What is done by then is
// not late.
func TestStopped(t *testing.T) {
	play(t, Config{Timeout: 2 * time.Millisecond}, func(t *testing.T, r *scripted) {
		r.nccl.set(answers{"Run": {ncclapi.InProgress}, "State": progress(looks+10+2, ncclapi.Success)}) // two looks are the watch's
		began := time.Now()
		require.NoError(t, r.sum())
		require.Greater(t, time.Since(began), r.cfg.Timeout)
	})
}

// TestNoTimeout: a call is in progress for longer than anything.
func TestNoTimeout(t *testing.T) {
	play(t, Config{Timeout: -1}, func(t *testing.T, r *scripted) {
		r.nccl.set(answers{"Run": {ncclapi.InProgress}, "State": progress(500, ncclapi.Success)})
		require.NoError(t, r.sum())
	})
}

// TestHandlesOfNothing: a Comm that no function made fails.
func TestHandlesOfNothing(t *testing.T) {
	handletest.Receivers(t, (*Comm)(nil), new(Comm))
	var none *Comm
	require.Zero(t, none.Rank())
	require.Zero(t, none.Size())
}

func TestDefaults(t *testing.T) {
	require.Equal(t, Config{Size: 1, Name: "nccl", Timeout: DefaultTimeout}, Config{}.withDefaults())
	full := Config{Rank: 2, Size: 3, Name: "other", Timeout: -1, Library: "here"}
	require.Equal(t, full, full.withDefaults())
}

// TestLocalFails: a rank that is there is aborted when another one cannot be.
func TestLocalFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool, _ := pooltest.New(t, 1<<30)
		x, broken := new(script), errors.New("broken")
		there := make(chan struct{})
		comms, err := newLocal(t.Context(), 3, func(ctx context.Context, rank int, share sharing) (*Comm, error) {
			switch rank {
			case 0:
				defer close(there)
				return begin(ctx, pool, 5, x, Config{Size: 3}.withDefaults(), share)
			case 1:
				<-there
				return nil, broken
			}
			<-ctx.Done()
			id, err := share(t.Context(), nil)
			require.NoError(t, err)
			require.EqualValues(t, 7, id[0])
			return nil, context.Cause(ctx)
		})
		require.Nil(t, comms)
		require.EqualError(t, err, "broken\nbroken\nbroken")
		require.Equal(t, []string{"NewID", "Init5 3 7 0", "Abort"}, x.made())
		require.NoError(t, pool.Close())
	})
}

// TestBegin has a rank that does not come to be.
func TestBegin(t *testing.T) {
	draws := func(_ context.Context, draw func() ([]byte, error)) ([]byte, error) { return draw() }
	for name, tc := range map[string]struct {
		nccl *script
		over bool // the context
		id   func(context.Context, func() ([]byte, error)) ([]byte, error)
		made []string
		err  string
	}{
		"no ID":      {&script{answers: answers{"NewID": {ncclapi.SystemError}}}, false, draws, []string{"NewID"}, "nccl: rank 1 of 3: nccl: rank 1 of 3: ncclGetUniqueId: ncclSystemError (text of 2); see the network and /dev/shm; NCCL_DEBUG=WARN tells more"},
		"a short ID": {&script{}, false, func(context.Context, func() ([]byte, error)) ([]byte, error) { return make([]byte, 127), nil }, nil, "nccl: rank 1 of 3: 127 bytes are not the 128 of an ncclUniqueId: wrong size"},
		"none":       {&script{noInit: true, answers: answers{"Init": {ncclapi.InvalidUsage}}}, false, draws, []string{"NewID", "Init5 3 7 1"}, "nccl: rank 1 of 3: ncclCommInitRankConfig: ncclInvalidUsage (text of 5)" + usageText},
		"fails":      {&script{answers: answers{"Init": {ncclapi.SystemError}}}, false, draws, []string{"NewID", "Init5 3 7 1", "Abort"}, "nccl: rank 1 of 3: ncclCommInitRankConfig: " + systemText},
		"late":       {&script{answers: answers{"Init": {ncclapi.InProgress}, "State": {ncclapi.InProgress}}}, false, draws, []string{"NewID", "Init5 3 7 1", "Abort"}, "nccl: rank 1 of 3: ncclCommInitRankConfig: " + lateText},
		"given up":   {&script{answers: answers{"Init": {ncclapi.InProgress}, "State": {ncclapi.InProgress}}}, true, draws, []string{"NewID", "Init5 3 7 1", "Abort"}, "nccl: rank 1 of 3: ncclCommInitRankConfig: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				if tc.over {
					stop()
				}
				c, err := begin(ctx, new(cupool.Pool), 5, tc.nccl, Config{Rank: 1, Size: 3, Timeout: time.Second}, tc.id)
				require.Nil(t, c)
				require.EqualError(t, err, tc.err)
				require.Equal(t, tc.made, tc.nccl.made())
			})
		})
	}
	for v, want := range map[int]string{22703: "2.27.3", 30000: "3.0.0"} {
		got, err := versionOf(&script{version: v})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := versionOf(&script{answers: answers{"Version": {ncclapi.SystemError}}})
	require.EqualError(t, err, "nccl: rank 0 of 0: ncclGetVersion: ncclSystemError (text of 2); see the network and /dev/shm; NCCL_DEBUG=WARN tells more")
}
