// Package progress shows how far a command has come while people wait: as a bar
// on a terminal, and elsewhere, as in a log, as a line now and then.
package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

const (
	every    = 10 * time.Second // between lines, so that short work prints none
	barWidth = 60               // columns, where the terminal has them
)

// A Bar is one piece of work, of a known number of units. Its methods are for
// one goroutine. Nothing else may be printed to the terminal before Close.
type Bar struct {
	name, unit  string
	done, total int

	container *mpb.Progress // nil: no terminal
	bar       *mpb.Bar

	w    io.Writer // of the lines
	now  func() time.Time
	last time.Time // when a line was printed, at first the beginning
}

// New starts a bar for so many units, such as "steps", with a name in front.
func New(w io.Writer, name, unit string, total int) *Bar {
	b := &Bar{name: name, unit: unit, total: total, w: w, now: time.Now}
	b.last = b.now()
	if !IsTerminal(w) {
		return b
	}
	b.container = mpb.New(mpb.WithOutput(w), mpb.WithWidth(barWidth))
	b.bar = b.container.AddBar(int64(total),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(name)),
		mpb.AppendDecorators(decor.CountersNoUnit(" %d/%d "+unit), decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace)))
	return b
}

// IsTerminal reports whether what is written to w is shown on a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// Add moves the bar on.
func (b *Bar) Add(units int) {
	b.done += units
	if b.bar != nil {
		b.bar.IncrBy(units)
		return
	}
	if now := b.now(); now.Sub(b.last) >= every {
		b.last = now
		fmt.Fprintf(b.w, "%s: %d of %d %s\n", b.name, b.done, b.total, b.unit)
	}
}

// Close removes the bar from the terminal. Further calls do nothing.
func (b *Bar) Close() {
	if b.container != nil {
		b.bar.Abort(true)
		b.container.Wait()
		b.container, b.bar = nil, nil
	}
}
