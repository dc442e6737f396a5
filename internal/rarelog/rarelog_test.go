package rarelog_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/rarelog"
)

// newLog returns a limited Logger and what it writes, without times.
func newLog(level slog.Level) (*slog.Logger, *bytes.Buffer) {
	var text bytes.Buffer
	return rarelog.Limit(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))), &text
}

// at logs a message of a moment.
func at(t *testing.T, l *slog.Logger, after time.Duration, level slog.Level, text string, attrs ...slog.Attr) {
	start := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	r := slog.NewRecord(start.Add(after), level, text, 0)
	r.AddAttrs(attrs...)
	require.NoError(t, l.Handler().Handle(t.Context(), r))
}

func TestLimit(t *testing.T) {
	l, text := newLog(slog.LevelInfo)
	const ms = time.Millisecond
	at(t, l, 0, slog.LevelWarn, "full", slog.Int("bytes", 1))
	at(t, l, 1*ms, slog.LevelWarn, "full", slog.Int("bytes", 2))
	at(t, l, 2*ms, slog.LevelInfo, "full")
	at(t, l, 3*ms, slog.LevelWarn, "late")
	at(t, l, 999*ms, slog.LevelWarn, "full", slog.Int("bytes", 3))
	at(t, l, 1000*ms, slog.LevelWarn, "full", slog.Int("bytes", 4))
	at(t, l, 1001*ms, slog.LevelWarn, "full", slog.Int("bytes", 5))
	at(t, l, 5000*ms, slog.LevelWarn, "full", slog.Int("bytes", 6))
	at(t, l, 7000*ms, slog.LevelWarn, "full", slog.Int("bytes", 7))
	require.Equal(t, []string{
		"level=WARN msg=full bytes=1",
		"level=INFO msg=full",
		"level=WARN msg=late",
		"level=WARN msg=full bytes=4 left_out=2",
		"level=WARN msg=full bytes=6 left_out=1",
		"level=WARN msg=full bytes=7",
	}, strings.Split(strings.TrimSpace(text.String()), "\n"))
}

// Pools are limited one by one.
func TestWith(t *testing.T) {
	l, text := newLog(slog.LevelInfo)
	a, b := l.With("pool", "a"), l.WithGroup("pool").With("name", "b")
	for _, l := range []*slog.Logger{l, a, b, a, b} {
		at(t, l, 0, slog.LevelWarn, "full", slog.Int("bytes", 1))
	}
	require.Equal(t, "level=WARN msg=full bytes=1\nlevel=WARN msg=full pool=a bytes=1\nlevel=WARN msg=full pool.name=b pool.bytes=1\n", text.String())
}

// A record that others hold is not changed.
func TestCloned(t *testing.T) {
	l, _ := newLog(slog.LevelInfo)
	start := time.Now()
	for range 2 {
		at(t, l, 0, slog.LevelWarn, "full")
	}
	r := slog.NewRecord(start, slog.LevelWarn, "full", 0)
	require.NoError(t, l.Handler().Handle(t.Context(), r))
	require.Zero(t, r.NumAttrs())
}

func TestEnabled(t *testing.T) {
	l, _ := newLog(slog.LevelWarn)
	require.False(t, l.Enabled(context.Background(), slog.LevelInfo))
	require.True(t, l.Enabled(context.Background(), slog.LevelWarn))
}

func TestGoroutines(t *testing.T) {
	l, text := newLog(slog.LevelInfo)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				l.Warn("full")
			}
		})
	}
	wg.Wait()
	require.Less(t, strings.Count(text.String(), "\n"), 1000)
}
