package cupool_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
)

// script runs the operations that the tables of these tests are written in,
// and verifies the allocator's books after each:
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
type script struct {
	t       testing.TB
	c       *cupool.Pool
	d       *countingDriver
	streams []*cupool.Stream
	blocks  map[string]cupool.Block
	events  map[string]*cupool.Event
}

func newScript(t testing.TB, c *cupool.Pool, d *countingDriver) *script {
	return &script{t: t, c: c, d: d, streams: []*cupool.Stream{c.DefaultStream()}, blocks: map[string]cupool.Block{}, events: map[string]*cupool.Event{}}
}

// run executes the operations, which blanks separate.
func (x *script) run(ops string) *script {
	x.t.Helper()
	for _, op := range strings.Fields(ops) {
		require.NoError(x.t, x.do(op), op)
		require.NoError(x.t, x.c.Check(), "after %s", op)
	}
	return x
}

func (x *script) do(op string) error {
	if name, what, ok := strings.Cut(op, "="); ok {
		size, at, _ := strings.Cut(what, "@")
		b, err := x.c.Alloc(parseSize(x.t, size), x.stream(at))
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
			return x.c.FreeOn(x.block(what), x.stream(at))
		}
		return x.c.Free(x.block(what))
	case "use":
		return x.c.RecordStream(x.block(what), x.stream(at))
	case "busy":
		x.d.busy(x.stream(what))
	case "idle":
		x.d.idle(x.stream(what))
	case "step":
		x.d.step(x.stream(what))
	case "mark":
		e, err := x.stream(at).Record()
		x.events[what] = e
		return err
	case "wait":
		who, whom, _ := strings.Cut(what, "<")
		if e := x.events[whom]; e != nil {
			return x.stream(who).Wait(e)
		}
		return x.stream(who).WaitStream(x.stream(whom))
	case "process":
		_, err := x.c.ProcessDeferred()
		return err
	case "sync":
		return x.stream(what).Sync()
	case "trim":
		_, err := x.c.Trim(parseSize(x.t, what))
		return err
	case "empty":
		return x.c.EmptyCache()
	case "reserve":
		return x.c.Reserve(parseSize(x.t, what), x.stream(at))
	case "close":
		return x.stream(what).Close()
	default:
		require.Fail(x.t, "unknown operation", op)
	}
	return nil
}

func (x *script) block(name string) cupool.Block {
	b, ok := x.blocks[name]
	require.True(x.t, ok, "no block %q", name)
	return b
}

// stream returns the stream of a number; those up to it are made.
func (x *script) stream(n string) *cupool.Stream {
	if n == "" {
		return nil
	}
	i, err := strconv.Atoi(n)
	require.NoError(x.t, err)
	for len(x.streams) <= i {
		s, err := x.c.NewStream()
		require.NoError(x.t, err)
		x.streams = append(x.streams, s)
	}
	return x.streams[i]
}

// layout is the allocator's Layout in one line.
func (x *script) layout() string {
	return strings.ReplaceAll(strings.TrimSpace(x.c.Snapshot().Layout()), "\n", "; ")
}

func parseSize(t testing.TB, s string) (sum int64) {
	for part := range strings.SplitSeq(s, "+") {
		n, err := cupool.ParseBytes(part)
		require.NoError(t, err)
		sum += n
	}
	return sum
}

// scriptCase is one line of a table: operations and the layout they lead to.
type scriptCase struct {
	ops, want string
}

// runScripts runs each line of a table on a new device.
func runScripts(t *testing.T, table map[string]scriptCase, capacity int64, change ...func(*cupool.Config)) {
	t.Helper()
	for name, tc := range table {
		t.Run(name, func(t *testing.T) {
			c, d := newPool(t, capacity, change...)
			require.Equal(t, tc.want, newScript(t, c, d).run(tc.ops).layout())
		})
	}
}

// backings runs a test with both ways to get memory from a host device.
var backings = conformance.Backings

func allocate(t *testing.T, c *cupool.Pool, size int64, s *cupool.Stream) cupool.Block {
	t.Helper()
	b, err := c.Alloc(size, s)
	require.NoError(t, err)
	return b
}
