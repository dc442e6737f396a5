package training

import (
	"io"
	"slices"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"
)

// MedianMicros is the median of times, in microseconds.
func MedianMicros(times []time.Duration) float64 {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return float64(sorted[len(sorted)/2].Nanoseconds()) / 1e3
}

// MiB is a number of bytes in MiB.
func MiB(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// A Bar shows the progress of an epoch on a terminal; elsewhere it is silent.
type Bar struct {
	container *mpb.Progress
	bar       *mpb.Bar
}

// NewBar starts a bar of so many steps if w is a terminal.
func NewBar(w io.Writer, name string, steps int) *Bar {
	if f, ok := w.(interface{ Fd() uintptr }); !ok || !term.IsTerminal(int(f.Fd())) {
		return &Bar{}
	}
	c := mpb.New(mpb.WithOutput(w), mpb.WithWidth(60))
	return &Bar{c, c.AddBar(int64(steps),
		mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(name+" ")),
		mpb.AppendDecorators(decor.CountersNoUnit(" %d/%d steps"), decor.AverageETA(decor.ET_STYLE_GO, decor.WCSyncSpace)),
	)}
}

// Step moves the bar on.
func (b *Bar) Step() {
	if b.bar != nil {
		b.bar.Increment()
	}
}

// Close removes the bar.
func (b *Bar) Close() {
	if b.bar != nil {
		b.bar.Abort(true)
		b.container.Wait()
	}
}
