package top

import (
	"context"
	"slices"
	"time"

	"github.com/gdamore/tcell/v2"

	"github.com/cupool/cupool/cmd/internal/printable"
)

// The times between two questions, which + and - go through.
var intervals = []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second}

var looks = map[style]tcell.Style{
	plain:   tcell.StyleDefault,
	strong:  tcell.StyleDefault.Bold(true),
	faint:   tcell.StyleDefault.Dim(true),
	live:    tcell.StyleDefault.Foreground(tcell.ColorGreen),
	pending: tcell.StyleDefault.Foreground(tcell.ColorYellow),
	cached:  tcell.StyleDefault.Foreground(tcell.ColorBlue),
	bad:     tcell.StyleDefault.Foreground(tcell.ColorRed).Bold(true),
}

// An answer is what came of one question.
type answer struct {
	state *State
	err   error
	took  time.Duration
}

// idle is how many times as long as a question took nothing is asked, since the
// program's allocators stand still for a part of that.
const idle = 4

// watch asks and draws until the user quits or ctx ends.
func watch(ctx context.Context, screen tcell.Screen, v *view, ask func(context.Context) (*State, error)) error {
	if err := screen.Init(); err != nil {
		return err
	}
	defer screen.Fini()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan tcell.Event, 16)
	go screen.ChannelEvents(events, ctx.Done())

	answers := make(chan answer, 1)
	question := func() {
		start := time.Now()
		s, err := ask(ctx)
		answers <- answer{s, err, time.Since(start)}
	}
	next := time.NewTimer(v.interval)
	defer next.Stop()
	for asked := false; ; {
		draw(screen, v)
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
			asked = true
			go question()
		case a := <-answers:
			asked = false
			v.take(a)
			next.Reset(max(v.interval, idle*a.took))
		case e, ok := <-events:
			before := v.interval
			if !ok || v.handle(e) {
				return nil
			}
			if _, resized := e.(*tcell.EventResize); resized {
				screen.Sync()
			}
			if v.interval != before && !asked {
				next.Reset(v.interval)
			}
		}
	}
}

// take shows an answer, unless the user wants to look at an older one.
func (v *view) take(a answer) {
	switch {
	case v.paused:
	case a.err != nil:
		v.err = a.err
	default:
		v.add(a.state)
	}
}

// draw puts the view on the screen.
func draw(screen tcell.Screen, v *view) {
	screen.Clear()
	width, height := screen.Size()
	for y, l := range v.lines(width, height) {
		x := 0
		for _, s := range l {
			for text := printable.Line(s.text); text != "" && x < width; {
				rest, w := screen.Put(x, y, text, looks[s.style])
				text, x = rest, x+max(w, 1)
			}
		}
	}
	screen.Show()
}

// handle does what a key is for. It reports whether that is to quit.
func (v *view) handle(e tcell.Event) (quit bool) {
	key, ok := e.(*tcell.EventKey)
	if !ok {
		return false
	}
	switch key.Key() {
	case tcell.KeyCtrlC, tcell.KeyEscape:
		return true
	case tcell.KeyTab:
		v.labels = !v.labels
	case tcell.KeyRune:
		switch key.Rune() {
		case 'q':
			return true
		case ' ':
			v.paused = !v.paused
		case 's':
			v.order = (v.order + 1) % orders
		case '+':
			v.faster()
		case '-':
			v.slower()
		}
	}
	return false
}

// faster takes the next shorter interval, if there is one.
func (v *view) faster() {
	for _, d := range slices.Backward(intervals) {
		if d < v.interval {
			v.interval = d
			return
		}
	}
}

// slower takes the next longer interval, if there is one.
func (v *view) slower() {
	for _, d := range intervals {
		if d > v.interval {
			v.interval = d
			return
		}
	}
}
