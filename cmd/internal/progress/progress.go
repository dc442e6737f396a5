// Package progress shows how far a command has come while people wait: on a
// terminal in one line that changes, and elsewhere, as in a log, in a line now
// and then.
package progress

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cupool/cupool/cmd/internal/printable"
)

const (
	every  = 10 * time.Second       // between lines, so that short work prints none
	redraw = 100 * time.Millisecond // between changes of a terminal's line
)

// A Bar is one piece of work, of a known number of units. Its methods are for
// one goroutine. Nothing else may be printed to the terminal before Close.
type Bar struct {
	name, unit  string
	done, total int

	w        io.Writer
	terminal bool
	now      func() time.Time
	last     time.Time // when something was printed, at first the beginning
}

// New starts a bar for so many units, such as "steps", with a name in front. It takes a
// printable.Writer of a terminal for that.
func New(w io.Writer, name, unit string, total int) *Bar {
	if p, ok := w.(interface{ Unwrap() io.Writer }); ok && isTerminal(p.Unwrap()) {
		w, name = p.Unwrap(), printable.Line(name)
	}
	return &Bar{name: name, unit: unit, total: total, w: w, terminal: isTerminal(w), now: time.Now, last: time.Now()}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Add moves the bar on.
func (b *Bar) Add(units int) {
	b.done += units
	now := b.now()
	switch waited := now.Sub(b.last); {
	case b.terminal && waited >= redraw:
		fmt.Fprintf(b.w, "\r\x1b[K%s: %d of %d %s", b.name, b.done, b.total, b.unit)
	case !b.terminal && waited >= every:
		fmt.Fprintf(b.w, "%s: %d of %d %s\n", b.name, b.done, b.total, b.unit)
	default:
		return
	}
	b.last = now
}

// Close removes the bar from the terminal. Further calls do nothing.
func (b *Bar) Close() {
	if b.terminal {
		fmt.Fprint(b.w, "\r\x1b[K")
		b.terminal = false
	}
}
