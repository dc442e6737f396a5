//go:build browser

package pagetest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/debug"
	"github.com/cupool/cupool/internal/testkit/debugtest"
)

// drawn is what a chart of some samples has.
type drawn struct {
	Runs  int      `json:"runs"`  // of samples without gaps
	Left  []string `json:"left"`  // the labels of the axes
	Below []string `json:"below"` // in their order
	Gaps  []string `json:"gaps"`  // what gaps are called
	Live  []int    `json:"live"`  // columns of pixels with the colour of live memory, in their order: those that begin such a row and those that end it
}

// draw draws samples of 3 GiB live at these times, in milliseconds, in a chart of the page's size.
func (b *browser) draw(live bool, bytes int64, times ...int64) (d drawn) {
	b.t.Helper()
	at, err := json.Marshal(times)
	require.NoError(b.t, err)
	return eval[drawn](b, fmt.Sprintf(`(async () => {
	const { Chart } = await import(new URL('chart.js', document.baseURI));
	const root = document.createElement('div');
	root.className = 'chart';
	root.append(document.createElement('canvas'));
	document.querySelector('#time').after(root);
	const chart = new Chart(root, () => {}), d = { runs: 0, left: [], below: [], gaps: [], live: [] };
	const time = %s, all = n => time.map(() => n), text = chart.g.fillText.bind(chart.g);
	chart.show({ time, requested: all(0), live: all(%[2]d), pending: all(0), reserved: all(%[2]d), peak: all(%[2]d) }, %[3]t);
	await new Promise(requestAnimationFrame);
	await new Promise(requestAnimationFrame);
	chart.g.fillText = (t, x, y) => { (x === 0 ? d.gaps : x < 60 ? d.left : d.below).push(t); text(t, x, y); };
	chart.paint();
	d.runs = chart.runs.length;
	const g = chart.g, row = g.getImageData(0, chart.canvas.height - 30, chart.canvas.width, 1).data;
	for (let x = 0, before = false; x < chart.canvas.width; x++) {
		const is = row[4 * x + 2] > row[4 * x] + 60 && row[4 * x + 3] > 0;
		if (is !== before) d.live.push(x);
		before = is;
	}
	root.remove();
	return d;
})()`, at, bytes, live))
}

// every returns n times from a moment on, so many milliseconds apart.
func every(from, step int64, n int) (times []int64) {
	for i := range n {
		times = append(times, from+int64(i)*step)
	}
	return times
}

// What nobody looked at is a gap, however long. One sample is a point. Labels of an axis
// are all different, in one unit.
func TestChart(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{})
	b := openBrowser(t, debug.Handler(c))
	b.ready()
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.Local).UnixMilli()
	hour := time.Hour.Milliseconds()
	for _, width := range []int64{1360, 320} {
		b.look("light", width, 900)
		for _, x := range []struct {
			name  string
			live  bool
			bytes int64
			times []int64
			runs  int
		}{
			{"a minute", true, 3 << 30, every(now, 1000, 60), 1},
			{"an hour without a viewer", true, 3 << 30, append(every(now, 1000, 60), every(now+hour, 1000, 20)...), 2},
			{"looked at again just now", true, 3 << 30, append(every(now, 1000, 60), now+hour), 2},
			{"one sample", true, 3 << 30, []int64{now}, 1},
			{"nobody stays", true, 1 << 20, every(now, hour, 40), 40},
			{"kilobytes", true, 1700, every(now, 1000, 30), 1},
			{"a file of a millisecond", false, 3 << 30, []int64{now, now + 1}, 1},
			{"a file of one event", false, 3 << 30, []int64{now}, 1},
			{"numbers of two events", false, 3 << 30, []int64{7, 8}, 1},
			{"numbers of events", false, 1200 << 20, every(1, 900, 500), 1},
		} {
			name := fmt.Sprintf("%s, %d pixels", x.name, width)
			d := b.draw(x.live, x.bytes, x.times...)
			assert.Equal(t, x.runs, d.Runs, name)
			assert.Len(t, d.Live, 2*x.runs, name)
			assert.GreaterOrEqual(t, len(d.Left), 2, name)
			units := map[string]bool{}
			for _, label := range d.Left[1:] {
				var n float64
				var unit string
				_, err := fmt.Sscan(label, &n, &unit)
				require.NoError(t, err, label)
				units[unit] = true
			}
			assert.Len(t, units, 1, "%s: %v", name, d.Left)
			for _, axis := range [][]string{d.Left, d.Below} {
				different := map[string]bool{}
				for _, label := range axis {
					different[label] = true
				}
				assert.Len(t, different, len(axis), "%s: %v", name, axis)
			}
			assert.NotEmpty(t, d.Below, name)
			if x.runs == 2 {
				assert.Equal(t, []string{"59 min not seen"}, d.Gaps[:1], name)
			}
		}
	}
}

// contrast is that of two colours of the style sheet, as WCAG has it: 1 is none.
const contrast = `(names => {
	const light = name => {
		const hex = getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
		const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255).map(x => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
	};
	const [a, b] = names.map(light);
	return Math.max(a, b) / Math.min(a, b);
})`

// Bars have the lengths of what they stand for, greys of the map differ, and on a phone each
// event is as wide as the page, without a row of heads.
func TestReadable(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{History: debugtest.Everything(), Limit: 1 << 30})
	debugtest.Work(t, c, 1)
	b := openBrowser(t, debug.Handler(c))
	b.ready()
	b.wait(`document.querySelectorAll('#free .part').length > 1 && document.querySelectorAll('#events tbody tr').length > 5`)
	for _, scheme := range []string{"light", "dark"} {
		b.look(scheme, 1360, 900)
		fill := func(of string) string {
			return eval[string](b, fmt.Sprintf(`getComputedStyle(document.querySelector(%q)).fill`, of))
		}
		assert.NotEqual(t, fill("#free .rest"), fill("#free .part"), scheme)
		assert.NotEqual(t, fill("#lost .rest"), fill("#lost .part"), scheme)
		for _, pair := range []string{"['free', 'gap']", "['free', 'other']"} {
			assert.Greater(t, eval[float64](b, contrast+"("+pair+")"), 1.35, "%s %s", scheme, pair)
		}
	}
	b.look("light", 390, 900)
	assert.True(t, eval[bool](b, `getComputedStyle(document.querySelector('#events thead')).display === 'none'`))
	assert.True(t, eval[bool](b, `(t => t.scrollWidth <= t.clientWidth)(document.querySelector('#events').parentElement)`), "events go beyond the page")
}
