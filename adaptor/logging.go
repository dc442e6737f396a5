package adaptor

import (
	"context"
	"log/slog"
	"time"

	"github.com/cupool/cupool"
)

// Logging logs calls: those that succeed at slog.LevelDebug, those that fail at
// slog.LevelWarn. It costs next to nothing where the Logger is not enabled for the
// level.
type Logging struct {
	over
	log *slog.Logger
}

// NewLogging returns an allocator that logs the calls through it, or none of them where
// log is nil. A record has the attributes ptr, size, stream, took (of an allocation) and
// error, as far as they apply.
func NewLogging(a cupool.Allocator, log *slog.Logger) *Logging {
	return &Logging{over: over{orNone(a)}, log: log}
}

// say logs a call. It calls attrs only where the Logger is enabled.
func (l *Logging) say(call string, err error, attrs func() []slog.Attr) {
	level := slog.LevelDebug
	if err != nil {
		level = slog.LevelWarn
	}
	ctx := context.Background()
	if l.log == nil || !l.log.Enabled(ctx, level) {
		return
	}
	all := attrs()
	if err != nil {
		all = append(all, slog.Any("error", err))
	}
	l.log.LogAttrs(ctx, level, call, all...)
}

func block(b cupool.Block) []slog.Attr {
	return []slog.Attr{slog.Any("ptr", b.Ptr()), slog.Int64("size", b.Size())}
}

func stream(s *cupool.Stream) slog.Attr { return slog.Uint64("stream", uint64(s.Handle())) }

// Alloc implements cupool.Allocator.
func (l *Logging) Alloc(size int64, s *cupool.Stream) (cupool.Block, error) {
	start := time.Now()
	b, err := l.Unwrap().Alloc(size, s)
	l.say("alloc", err, func() []slog.Attr {
		return []slog.Attr{slog.Any("ptr", b.Ptr()), slog.Int64("size", size), stream(s), slog.Duration("took", time.Since(start))}
	})
	return b, err
}

// Free implements cupool.Allocator.
func (l *Logging) Free(b cupool.Block) error {
	err := l.Unwrap().Free(b)
	l.say("free", err, func() []slog.Attr { return block(b) })
	return err
}

// FreePtr implements cupool.Allocator.
func (l *Logging) FreePtr(p cupool.Ptr, size int64) error {
	err := l.Unwrap().FreePtr(p, size)
	l.say("free", err, func() []slog.Attr { return []slog.Attr{slog.Any("ptr", p), slog.Int64("size", size)} })
	return err
}

// RecordStream implements cupool.Allocator.
func (l *Logging) RecordStream(b cupool.Block, s *cupool.Stream) error {
	err := l.Unwrap().RecordStream(b, s)
	l.say("record stream", err, func() []slog.Attr { return append(block(b), stream(s)) })
	return err
}
