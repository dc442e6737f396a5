package cupool_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// logged is a record without its time.
type logged struct {
	level   slog.Level
	message string
	attrs   map[string]any
}

// recorder is a slog.Handler that keeps what it gets.
type recorder struct {
	with []slog.Attr
	to   *[]logged
	mu   *sync.Mutex
}

func newRecorder() recorder { return recorder{to: new([]logged), mu: new(sync.Mutex)} }

func (r recorder) Enabled(context.Context, slog.Level) bool { return true }
func (r recorder) WithGroup(string) slog.Handler            { return r }

func (r recorder) WithAttrs(attrs []slog.Attr) slog.Handler {
	r.with = append(r.with[:len(r.with):len(r.with)], attrs...)
	return r
}

func (r recorder) Handle(_ context.Context, record slog.Record) error {
	l := logged{record.Level, record.Message, map[string]any{}}
	add := func(a slog.Attr) bool {
		l.attrs[a.Key] = a.Value.Any()
		return true
	}
	for _, a := range r.with {
		add(a)
	}
	record.Attrs(add)
	r.mu.Lock()
	defer r.mu.Unlock()
	*r.to = append(*r.to, l)
	return nil
}

// take returns the records since the last call that have at least a level.
func (r recorder) take(level slog.Level) (found []logged) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range *r.to {
		if l.level >= level {
			found = append(found, l)
		}
	}
	*r.to = nil
	return found
}

// Rare events are logged with what they concern, and a pool with its name.
func TestLogRareEvents(t *testing.T) {
	log := newRecorder()
	c, d := pooltest.New(t, 40*mib, func(cfg *cupool.Config) { cfg.Logger = slog.New(log) })
	x := pooltest.NewScript(t, c, d).Run("a=20M b=20M free:a a=20M busy:1 busy:2 free:b@2")
	require.Empty(t, log.take(slog.LevelDebug), "what is not rare")

	x.Run("c=20M")
	require.Equal(t, []logged{{slog.LevelInfo, "allocated after memory was reclaimed", map[string]any{
		"device": "counting", "stream": uint64(0), "bytes": int64(20 * mib), "after": "wait for one pending block",
	}}}, log.take(slog.LevelDebug))

	p := newPrivate(t, c, cupool.PoolConfig{Name: "tenant"})
	for range 100 {
		x.Run("oom=10M")
		_, err := p.Alloc(5000, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	}
	got := log.take(slog.LevelDebug)
	require.Less(t, len(got), 100, "a storm is left out")
	require.Equal(t, "out of memory", got[0].message)
	require.ErrorIs(t, got[0].attrs["error"].(error), cupool.ErrOutOfMemory)
	for i, want := range []map[string]any{
		{"device": "counting", "stream": uint64(0), "bytes": int64(10 * mib), "reserved": int64(40 * mib)},
		{"device": "counting", "pool": "tenant", "stream": uint64(0), "bytes": int64(5000), "reserved": int64(0)},
	} {
		require.Equal(t, slog.LevelWarn, got[i].level)
		delete(got[i].attrs, "error")
		require.Equal(t, want, got[i].attrs)
	}

	x.Run("free:a trim:0")
	require.Equal(t, []logged{{slog.LevelDebug, "memory went back to the device", map[string]any{
		"device": "counting", "bytes": int64(20 * mib),
	}}}, log.take(slog.LevelDebug))

	require.NoError(t, c.StartHistory(cupool.History{Events: 10, SampleBytes: 1}))
	c.StopHistory()
	require.Equal(t, []logged{
		{slog.LevelInfo, "history started", map[string]any{"device": "counting", "events": int64(10), "sample_bytes": int64(1)}},
		{slog.LevelInfo, "history stopped", map[string]any{"device": "counting"}},
	}, log.take(slog.LevelDebug))
	require.Equal(t, slog.New(log), c.Config().Logger, "the program's own")
}

// Work that is late is logged when an allocation gives up waiting for it, whether
// or not it finds memory elsewhere.
func TestLogLateWork(t *testing.T) {
	log := newRecorder()
	c, err := cupool.New(cupool.Config{Backing: cupool.BackingSegments, Limit: 64 * mib, WaitTimeout: time.Millisecond, Logger: slog.New(log)})
	require.NoError(t, err)
	u, err := c.NewStream()
	require.NoError(t, err)
	gate := make(chan struct{})
	require.NoError(t, u.Launch(func() { <-gate }))
	require.NoError(t, c.FreeOn(pooltest.Alloc(t, c, 40*mib, nil), u))
	_, err = c.Alloc(60*mib, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	close(gate)
	require.NoError(t, u.Sync())

	got := log.take(slog.LevelWarn)
	require.Equal(t, "work was late; an allocation looks elsewhere", got[0].message)
	var late *cupool.WaitError
	require.ErrorAs(t, got[0].attrs["error"].(error), &late)
	require.Equal(t, u.Handle(), late.Stream)
	require.NoError(t, c.Close())
}
