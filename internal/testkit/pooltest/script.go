package pooltest

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
)

// A Script runs the operations that tables of tests are written in, and verifies the allocator's books after each:
//
//	a=2M     a=2M@1      allocate on stream 0 or another; sizes add: 1M+512
//	oom=2M   oom=2M@1    the same, and expect ErrOutOfMemory
//	free:a   free:a@1    Free, or FreeOn a stream
//	use:a@1              RecordStream
//	busy:1   idle:1      begin and end work of the stream that takes long
//	step:1               end the oldest work of a busy stream
//	wait:0<1             stream 0 waits for what stream 1 was given so far
//	mark:e@1  wait:0<e   the same in two steps, with an event
//	process  sync:1      ProcessDeferred, Stream.Sync
//	trim:20M  empty      Trim, EmptyCache
//	reserve:2M  close:1  Reserve, Stream.Close
//
// A name may be used again once its block was freed.
type Script struct {
	Pool    *cupool.Pool
	Streams []*cupool.Stream // by number

	t      testing.TB
	d      *Driver
	blocks map[string]cupool.Block
	events map[string]*cupool.Event
}

// NewScript returns a Script on a pool of New.
func NewScript(t testing.TB, c *cupool.Pool, d *Driver) *Script {
	return &Script{
		Pool: c, Streams: []*cupool.Stream{c.DefaultStream()},
		t: t, d: d, blocks: map[string]cupool.Block{}, events: map[string]*cupool.Event{},
	}
}

// Run executes the operations, which blanks separate.
func (x *Script) Run(ops string) *Script {
	x.t.Helper()
	for _, op := range strings.Fields(ops) {
		require.NoError(x.t, x.Do(op), op)
		require.NoError(x.t, x.Pool.Check(), "after %s", op)
	}
	return x
}

// Do executes one operation.
func (x *Script) Do(op string) error {
	if name, what, ok := strings.Cut(op, "="); ok {
		size, at, _ := strings.Cut(what, "@")
		b, err := x.Pool.Alloc(Size(x.t, size), x.Stream(at))
		if name == "oom" {
			require.ErrorIs(x.t, err, cupool.ErrOutOfMemory, op)
			return nil
		}
		x.blocks[name] = b
		return err
	}
	verb, what, _ := strings.Cut(op, ":")
	what, at, hasStream := strings.Cut(what, "@")
	switch verb {
	case "free":
		if hasStream {
			return x.Pool.FreeOn(x.Block(what), x.Stream(at))
		}
		return x.Pool.Free(x.Block(what))
	case "use":
		return x.Pool.RecordStream(x.Block(what), x.Stream(at))
	case "busy":
		x.d.Busy(x.Stream(what))
	case "idle":
		x.d.Idle(x.Stream(what))
	case "step":
		x.d.Step(x.Stream(what))
	case "mark":
		e, err := x.Stream(at).Record()
		x.events[what] = e
		return err
	case "wait":
		who, whom, _ := strings.Cut(what, "<")
		if e := x.events[whom]; e != nil {
			return x.Stream(who).Wait(e)
		}
		return x.Stream(who).WaitStream(x.Stream(whom))
	case "process":
		_, err := x.Pool.ProcessDeferred()
		return err
	case "sync":
		return x.Stream(what).Sync()
	case "trim":
		_, err := x.Pool.Trim(Size(x.t, what))
		return err
	case "empty":
		return x.Pool.EmptyCache()
	case "reserve":
		return x.Pool.Reserve(Size(x.t, what), x.Stream(at))
	case "close":
		return x.Stream(what).Close()
	default:
		require.Fail(x.t, "unknown operation", op)
	}
	return nil
}

// Block returns the block of a name.
func (x *Script) Block(name string) cupool.Block {
	b, ok := x.blocks[name]
	require.True(x.t, ok, "no block %q", name)
	return b
}

// Stream returns the stream of a number; those up to it are made.
func (x *Script) Stream(n string) *cupool.Stream {
	if n == "" {
		return nil
	}
	i, err := strconv.Atoi(n)
	require.NoError(x.t, err)
	for len(x.Streams) <= i {
		s, err := x.Pool.NewStream()
		require.NoError(x.t, err)
		x.Streams = append(x.Streams, s)
	}
	return x.Streams[i]
}

// Layout is the allocator's Layout in one line.
func (x *Script) Layout() string {
	return strings.ReplaceAll(strings.TrimSpace(x.Pool.Snapshot().Layout()), "\n", "; ")
}

// Size returns the bytes that a sum of sizes, as 1M+512, is.
func Size(t testing.TB, s string) (sum int64) {
	for part := range strings.SplitSeq(s, "+") {
		n, err := cupool.ParseBytes(part)
		require.NoError(t, err)
		sum += n
	}
	return sum
}

// RunScripts runs each line of a table, operations and the layout that they
// lead to, on a new device.
func RunScripts(t *testing.T, table map[string][2]string, capacity int64, change ...func(*cupool.Config)) {
	t.Helper()
	for name, tc := range table {
		t.Run(name, func(t *testing.T) {
			c, d := New(t, capacity, change...)
			require.Equal(t, tc[1], NewScript(t, c, d).Run(tc[0]).Layout())
		})
	}
}

// Alloc allocates, and fails the test where that fails.
func Alloc(t testing.TB, a cupool.Allocator, size int64, s *cupool.Stream) cupool.Block {
	t.Helper()
	b, err := a.Alloc(size, s)
	require.NoError(t, err)
	return b
}
