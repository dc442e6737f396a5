package top

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-runewidth"

	"github.com/cupool/cupool/cmd/internal/printable"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/snapshot"
)

// A style is what a text means, which a terminal shows by a color.
type style int

const (
	plain style = iota
	strong
	faint
	live
	pending
	cached
	bad
)

type span struct {
	text string
	style
}

type line []span

// text returns the line without styles.
func (l line) text() string {
	var sb strings.Builder
	for _, s := range l {
		sb.WriteString(printable.Line(s.text))
	}
	return strings.TrimRight(sb.String(), " ")
}

// A view is what is to be shown, and how the user wants it.
type view struct {
	title       string
	now, before *State // nil: none yet
	err         error  // why there is no newer one
	past        []Memory

	paused   bool
	labels   bool // holders are those, and not lines
	order    order
	keys     bool // show which there are
	interval time.Duration
}

const (
	mostPast   = 512 // states that the curve is drawn of
	leastWidth = 20
	labelWidth = 11 // of the names in front of bars
)

// add takes a newer state.
func (v *view) add(s *State) {
	v.before, v.now, v.err = v.now, s, nil
	v.past = append(v.past, s.Memory)
	v.past = v.past[max(0, len(v.past)-mostPast):]
}

// lines draws the view for a screen, or all of it where the height is 0.
func (v *view) lines(width, height int) []line {
	width = max(width, leastWidth)
	head := v.head(width)
	if v.now == nil {
		return head
	}
	top := slices.Concat(head, v.memory(width), v.counts(), v.oom(width))
	left := 1 << 10
	if height > 0 {
		left = height - len(top)
		if v.keys {
			left--
		}
	}
	places, holders, events := share(left, v.places(width), v.holders(width), v.events(width))
	all := slices.Concat(top, places, holders, events)
	if v.keys && height > 0 {
		for len(all) < height-1 {
			all = append(all, nil)
		}
		all = append(all[:max(height-1, 0)], v.help())
	}
	return all
}

// share gives three tables as many lines as there are: the first and the last get
// a quarter, or two rows, and who needs less leaves it to the others.
func share(lines int, places, holders, events []line) (a, b, c []line) {
	least := max(lines/4, 4)
	first := min(len(places), lines, max(least, lines-len(holders)-len(events)))
	last := min(len(events), lines-first, max(least, lines-first-len(holders)))
	middle := min(len(holders), lines-first-last)
	return places[:max(first, 0)], holders[:max(middle, 0)], events[:max(last, 0)]
}

func (v *view) head(width int) []line {
	title := line{{"cupool top  ", strong}, {v.title, plain}}
	if v.now == nil {
		title = append(title, span{"  waiting for the first answer", faint})
	} else {
		title = append(title, span{fmt.Sprintf("  %s  %s", v.now.Device, v.now.Time.Format(time.TimeOnly)), faint})
	}
	if v.paused {
		title = append(title, span{"  paused", bad})
	}
	lines := []line{title}
	if v.err != nil {
		lines = append(lines, line{{runewidth.Truncate("trying again; "+strings.TrimPrefix(v.err.Error(), v.title+": "), width, "…"), bad}})
	}
	return lines
}

// memory draws what is reserved and what of it is in which state.
func (v *view) memory(width int) []line {
	s := v.now
	of := max(s.Limit, s.Peak, s.Reserved, s.Live+s.Pending+s.Cached, 1)
	var notes []string
	if s.Limit > 0 {
		notes = append(notes, "of "+bytesize.Format(s.Limit))
	}
	if s.Peak > 0 {
		notes = append(notes, "peak "+bytesize.Format(s.Peak))
	}
	figure := func(name string, n int64) span {
		return span{fmt.Sprintf("%-*s%10s  ", labelWidth, name, bytesize.Format(n)), plain}
	}
	room := max(width-labelWidth-12-24, 0)
	columns := func(n int64) int { return steps(n, of, room) }
	stacked := line{figure("reserved", s.Reserved),
		{strings.Repeat("█", columns(s.Live)), live}, {strings.Repeat("█", columns(s.Pending)), pending},
		{strings.Repeat("█", columns(s.Cached)), cached}}
	stacked = append(stacked, span{strings.Repeat("·", max(room-columns(s.Live)-columns(s.Pending)-columns(s.Cached), 0)), faint}, span{"  " + strings.Join(notes, ", "), faint})
	lines := []line{stacked}
	for _, part := range []struct {
		name  string
		bytes int64
		style
	}{{"  live", s.Live, live}, {"  pending", s.Pending, pending}, {"  cached", s.Cached, cached}} {
		lines = append(lines, line{figure(part.name, part.bytes), {bar(part.bytes, of, room), part.style}})
	}
	if len(v.past) > 1 && room > 0 {
		lines = append(lines, line{{fmt.Sprintf("%-*s%10s  ", labelWidth, "  live over", "time"), faint}, {v.curve(room), live}})
	}
	return lines
}

// steps returns how many of all steps n of so many are. A stranger's page may claim less than
// nothing, and sums that no int64 holds.
func steps(n, of int64, all int) int {
	return int(float64(min(max(n, 0), of)) * float64(all) / float64(of))
}

// bar draws n of so many, to an eighth of a column.
func bar(n, of int64, columns int) string {
	eighths := steps(n, of, columns*8)
	if n > 0 {
		eighths = max(eighths, 1)
	}
	full := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		full += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return full
}

// curve draws the live bytes of the past, a state a column, the newest last.
func (v *view) curve(columns int) string {
	past := v.past[max(0, len(v.past)-columns):]
	highest := int64(1)
	for _, m := range past {
		highest = max(highest, m.Live)
	}
	var sb strings.Builder
	for _, m := range past {
		sb.WriteRune([]rune("▁▂▃▄▅▆▇█")[steps(m.Live, highest, 7)])
	}
	return sb.String()
}

// counts says what the allocator does: in a second while it is watched, and
// altogether.
func (v *view) counts() []line {
	s := v.now
	row := func(name string, c Counts, unit string) line {
		l := line{{fmt.Sprintf("%-*sallocs %s%s  frees %s%s  mapped %s%s  grown %s%s", labelWidth, name, count(c.Allocs), unit, count(c.Frees), unit, count(c.Mapped), unit, count(c.Grown), unit), plain}}
		if n := c.Hits + c.Mapped + c.Grown; n > 0 {
			l = append(l, span{fmt.Sprintf("  hits %.2f %%", 100*float64(c.Hits)/float64(n)), plain})
		}
		l = append(l, span{fmt.Sprintf("  driver %s%s", count(c.DriverAllocs), unit), plain})
		for _, f := range []struct {
			name string
			n    int64
		}{{"retries", c.Retries}, {"oom", c.OOMs}} {
			look := plain
			if f.n > 0 {
				look = bad
			}
			l = append(l, span{fmt.Sprintf("  %s %s%s", f.name, count(f.n), unit), look})
		}
		return l
	}
	var lines []line
	if r, ok := rates(v.before, s); ok {
		lines = append(lines, row("a second", r, "/s"))
	}
	return append(lines, row("all", s.Counts, ""))
}

// oom says why the last allocation that failed did.
func (v *view) oom(width int) []line {
	x := v.now.OOM
	if x == nil {
		return nil
	}
	lines := []line{{{fmt.Sprintf("out of memory at %s: %s", x.Time.Format(time.TimeOnly), bytesize.Format(x.Asked)), bad}}}
	for _, why := range x.Why {
		lines = append(lines, line{{runewidth.Truncate("  "+why, width, "…"), plain}})
	}
	return lines
}

// count is a number for people, in at most five columns.
func count(n int64) string {
	const units = "kMGTPE"
	if n < 10000 {
		return fmt.Sprint(n)
	}
	x, i := float64(n)/1000, 0
	for ; x >= 1000; i++ {
		x /= 1000
	}
	return fmt.Sprintf("%.3g%c", x, units[i])
}

func (v *view) places(width int) []line {
	if len(v.now.Places) == 0 {
		return nil
	}
	name := max(width-5*11, 12)
	lines := []line{{}, {{fmt.Sprintf("%s%11s%11s%11s%11s%11s", fit("POOL, STREAM", name), "RESERVED", "LIVE", "PENDING", "CACHED", "BLOCKS"), strong}}}
	for _, p := range v.now.Places {
		title, look := p.Name, plain
		if p.Stream {
			title, look = "  "+p.Name, faint
		}
		lines = append(lines, line{{fmt.Sprintf("%s%11s%11s%11s%11s%11s", fit(title, name),
			bytesize.Format(p.Reserved), bytesize.Format(p.Live), bytesize.Format(p.Pending), bytesize.Format(p.Cached), count(p.Blocks)), look}})
	}
	return lines
}

func (v *view) holders(width int) []line {
	title, none, holders := "LIVE BY LINE", "", v.now.Lines
	switch {
	case v.labels:
		title, holders = "LIVE BY LABEL", v.now.Labels
		if len(holders) == 0 {
			none = "no memory has a label: WithLabel gives it one"
		}
	case !v.now.Recorded:
		none = "no lines are recorded: set Config.History or call Pool.StartHistory"
	}
	lines := []line{{}, {{fmt.Sprintf("%11s%8s%8s  %s, BY %s", "BYTES", "BLOCKS", "SHARE", title, strings.ToUpper(v.order.String())), strong}}}
	for _, h := range sorted(holders, v.order) {
		share := 100 * float64(h.Bytes) / float64(max(v.now.Live, h.Bytes, 1))
		lines = append(lines, line{{fmt.Sprintf("%11s%8s%6.1f %%  ", bytesize.Format(h.Bytes), count(h.Blocks), share), plain},
			{runewidth.Truncate(h.Name, max(width-29, 0), "…"), plain}})
	}
	if none != "" {
		lines = append(lines, line{{"  " + none, faint}})
	}
	return lines
}

// events lists the last events, the newest first.
func (v *view) events(width int) []line {
	if len(v.now.Events) == 0 {
		return nil
	}
	lines := []line{{}, {{"EVENTS, THE NEWEST FIRST", strong}}}
	for _, e := range slices.Backward(v.now.Events) {
		look := plain
		if e.Kind == snapshot.OutOfMemory {
			look = bad
		}
		text := fmt.Sprintf("%s  %-14s%11s  stream %d", e.Time.Format("15:04:05.000"), e.Kind, bytesize.Format(e.Size), e.Stream)
		for _, more := range []string{e.Pool, e.Label} {
			if more != "" {
				text += "  " + more
			}
		}
		if len(e.Stack) > 0 {
			text += "  " + stackName(e.Stack)
		}
		lines = append(lines, line{{runewidth.Truncate(text, width, "…"), look}})
	}
	return lines
}

func (v *view) help() line {
	other := "labels"
	if v.labels {
		other = "lines"
	}
	return line{{fmt.Sprintf("q quit  space pause  s sort by %s  tab %s  + - every %v", (v.order+1)%orders, other, v.interval), faint}}
}

// stackName is what a stack has of the program in one line, the innermost function first,
// as "main.load (main.go:12) < main.main (main.go:40)".
func stackName(s snapshot.Stack) string {
	var parts []string
	for _, f := range s.Program() {
		parts = append(parts, f.String())
	}
	return strings.Join(parts, " < ")
}

// fit makes a text exactly so many columns wide.
func fit(s string, columns int) string {
	return runewidth.FillRight(runewidth.Truncate(s, columns, "…"), columns)
}
