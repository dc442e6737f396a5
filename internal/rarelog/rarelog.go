// Package rarelog logs events that are rare, but that may come in storms, such as
// allocations that fail one after the other.
package rarelog

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Interval is the least time between two records of one message.
const Interval = time.Second

// Limit returns a Logger that hands at most one record of each message and level
// to another Logger in every Interval. The next one says with the attribute
// left_out how many there were in between. With and WithGroup return Loggers with
// an Interval of their own, so that attributes tell pools apart. Messages must be few.
func Limit(to *slog.Logger) *slog.Logger { return slog.New(newLimited(to.Handler())) }

// message is what is limited by itself.
type message struct {
	level slog.Level
	text  string
}

// sent is what is remembered of a message.
type sent struct {
	last    time.Time
	leftOut int64 // since then
}

// limited is the Handler of Limit.
type limited struct {
	to slog.Handler

	mu   sync.Mutex
	seen map[message]*sent
}

func newLimited(to slog.Handler) *limited {
	return &limited{to: to, seen: map[message]*sent{}}
}

// Enabled implements slog.Handler.
func (h *limited) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *limited) Handle(ctx context.Context, r slog.Record) error {
	leftOut, due := h.admit(message{r.Level, r.Message}, r.Time)
	if !due {
		return nil
	}
	if leftOut > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("left_out", leftOut))
	}
	return h.to.Handle(ctx, r)
}

// admit reports whether a message is due, and how many were left out before it.
func (h *limited) admit(m message, now time.Time) (leftOut int64, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.seen[m]
	switch {
	case s == nil:
		s = &sent{}
		h.seen[m] = s
	case now.Sub(s.last) < Interval:
		s.leftOut++
		return 0, false
	}
	leftOut = s.leftOut
	s.last, s.leftOut = now, 0
	return leftOut, true
}

// WithAttrs implements slog.Handler.
func (h *limited) WithAttrs(attrs []slog.Attr) slog.Handler { return newLimited(h.to.WithAttrs(attrs)) }

// WithGroup implements slog.Handler.
func (h *limited) WithGroup(name string) slog.Handler { return newLimited(h.to.WithGroup(name)) }
