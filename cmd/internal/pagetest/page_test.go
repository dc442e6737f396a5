//go:build browser

// Package pagetest looks at the page of package debug in a browser. It needs
// Chromium, and the tag browser: without it "go test work" need not build what
// drives one.
package pagetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/debug"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/debugtest"
)

// ready waits until the page shows blocks.
func (b *browser) ready() {
	b.t.Helper()
	b.wait(`document.querySelector('#tiles dd') && document.querySelector('#holders caption, #holders tr')`)
}

// tile is the figure of a name at the top of the page.
func (b *browser) tile(name string) string {
	b.t.Helper()
	return eval[string](b, tileOf(name))
}

func tileOf(name string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#tiles div')].find(d => d.innerText.startsWith(%q)).querySelector('dd').innerText`, name)
}

// A program allocates and frees, and someone looks at its page: figures, holders, the
// map with mouse and keys, the buttons, a private pool.
func TestPage(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{History: debugtest.Everything(), Limit: 1 << 30, Backing: cupool.BackingSegments})
	graphs, err := c.NewPool(cupool.PoolConfig{Name: "graphs"})
	require.NoError(t, err)
	weights, err := c.WithLabel("weights").Alloc(40<<20, nil)
	require.NoError(t, err)
	b := openBrowser(t, debug.Handler(c))
	b.ready()
	assert.Equal(t, "40 MiB", b.tile("Live"))
	assert.Contains(t, b.text("#tiles"), "of 1 GiB")
	assert.Contains(t, b.text("#holders"), "TestPage")
	assert.Contains(t, b.text("#map-legend"), "Live")

	_, err = c.Alloc(60<<20-100, nil)
	require.NoError(t, err)
	b.wait(tileOf("Live") + ` === '100 MiB'`)
	b.wait(`document.querySelectorAll('#holders tbody tr').length === 2`)
	b.do(chromedp.Click(`input[name=holders][value=label]`))
	assert.Contains(t, b.text("#holders"), "weights")
	assert.Contains(t, b.text("#holders"), "no label")
	b.do(chromedp.Click(`input[name=by][value=label]`))
	assert.Contains(t, b.text("#map-legend"), "weights")

	// Under the first head is the first row.
	require.Contains(t, b.text("#block"), "Point at a block")
	b.do(chromedp.ScrollIntoView("#map"))
	at := eval[[]float64](b, `(r => [r.left + 30, r.top + 4 + 26 + 8])(document.querySelector('#map').getBoundingClientRect())`)
	b.do(chromedp.MouseEvent("mouseMoved", at[0], at[1]))
	b.wait(`document.querySelector('#block').innerText.includes('40 MiB')`)
	text := b.text("#block")
	for _, want := range []string{"Live block", "weights", "TestPage", "page_test.go:", "Stream\n0"} {
		assert.Contains(t, text, want)
	}
	b.do(chromedp.MouseEvent("mouseMoved", 5, 5))
	b.wait(`document.querySelector('#block').innerText.includes('Point at')`)
	b.do(chromedp.Focus("#map"), chromedp.KeyEvent(kb.ArrowRight))
	b.wait(`document.querySelector('#said').innerText.includes('40 MiB, label weights')`)
	b.do(chromedp.KeyEvent(kb.ArrowRight))
	b.wait(`document.querySelector('#block').innerText.includes('100 B lost')`)
	b.do(chromedp.KeyEvent(kb.Home), chromedp.KeyEvent(kb.Enter))
	b.wait(`document.querySelector('#map-legend button')`)
	b.do(chromedp.KeyEvent(kb.Escape))
	b.wait(`!document.querySelector('#map-legend button') && document.querySelector('#block').innerText.includes('Point at')`)

	require.NoError(t, c.Free(weights))
	b.wait(tileOf("Live") + ` === '60 MiB'`)
	b.wait(`document.querySelector('#lost').innerText.includes('40 MiB')`)
	b.wait(`document.querySelector('#time-legend').innerText.includes('60 MiB')`)
	b.do(chromedp.Click("#trim"))
	b.wait(`document.querySelector('#said').innerText.includes('40 MiB')`)
	b.wait(tileOf("Reserved") + ` === '60 MiB'`)

	b.wait(`/limit\s+1G\s+the program/.test(document.querySelector('#settings').innerText)`)
	assert.NotContains(t, b.text("#settings"), "min_block")
	b.do(chromedp.Click("#defaults summary"))
	b.wait(`/min_block\s+512/.test(document.querySelector('#default-settings').innerText)`)

	_, err = graphs.Alloc(8<<20, nil)
	require.NoError(t, err)
	b.wait(`document.querySelector('#pool').innerHTML.includes('graphs')`)
	b.do(chromedp.SetValue("#pool", "allocator/graphs"), chromedp.Evaluate(`document.querySelector('#pool').dispatchEvent(new Event('change'))`, nil))
	b.wait(tileOf("Live") + ` === '8 MiB'`)
	assert.Contains(t, eval[string](b, "location.search"), "pool=allocator%2Fgraphs")
	assert.Contains(t, eval[string](b, "document.querySelector('#get-json').href"), "/debug/cupool/snapshot?pool=allocator%2Fgraphs")
	b.do(chromedp.Click("#segments summary"), chromedp.WaitVisible("#segment-table tbody button"), chromedp.Click("#segment-table tbody button"))
	b.wait(`document.querySelector('#segment-table').innerText.includes('Live')`)
	b.do(chromedp.Click("#pause"))
	_, err = graphs.Alloc(8<<20, nil)
	require.NoError(t, err)
	require.Equal(t, "Paused", b.text("#pause"))
	b.do(chromedp.Click("#pause"))
	b.wait(tileOf("Live") + ` === '16 MiB'`)
}

// The page has its colours by the system's choice, and fits a phone. What can be used
// has a role and a name, and landmarks and headings are there.
func TestLooks(t *testing.T) {
	t.Setenv(cupool.AllocConf, "backend:native,expandable_segments:True,limit:2G")
	t.Setenv("CUPOOL_OOM_DUMP", "/var/lib/trainer/out-of-memory")
	c := debugtest.NewPool(t, cupool.Config{History: debugtest.Everything(), Limit: 1 << 30})
	debugtest.Work(t, c, 1)
	b := openBrowser(t, debug.Handler(c))
	b.ready()
	background := func() string { return eval[string](b, `getComputedStyle(document.body).backgroundColor`) }
	var seen []string
	for _, look := range []struct {
		name, scheme  string
		width, height int64
	}{{"light", "light", 1360, 2300}, {"dark", "dark", 1360, 2300}, {"phone", "light", 390, 3400}, {"small", "dark", 320, 700}} {
		b.look(look.scheme, look.width, look.height)
		b.shot(look.name)
		seen = append(seen, background())
		assert.LessOrEqual(t, eval[int64](b, "document.documentElement.scrollWidth"), look.width, look.name)
	}
	assert.NotEqual(t, seen[0], seen[1])

	type value struct {
		Value any `json:"value"`
	}
	var tree struct { // of the protocol, as cdproto does not know all that newer browsers say
		Nodes []struct {
			Ignored bool  `json:"ignored"`
			Role    value `json:"role"`
			Name    value `json:"name"`
		} `json:"nodes"`
	}
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, "Accessibility.getFullAXTree", nil, &tree)
	}))
	roles := map[any]int{}
	for _, n := range tree.Nodes {
		if n.Ignored {
			continue
		}
		roles[n.Role.Value]++
		switch n.Role.Value {
		case "button", "link", "combobox", "radio", "application", "region", "navigation", "complementary", "image":
			assert.NotEmpty(t, n.Name.Value, "a %s has no name", n.Role.Value)
		}
	}
	for _, role := range []string{"banner", "main", "navigation", "contentinfo", "application", "status", "heading", "table", "combobox", "radio"} {
		assert.NotZero(t, roles[role], role)
	}
	assert.Empty(t, eval[[]string](b, `[...document.querySelectorAll('[id]')].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i)`), "IDs that are there twice")
}

// History is recorded from the click on, and the moment of an out of memory can be
// looked at later.
func TestHistoryAndMoment(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{Limit: 512 << 20})
	b := openBrowser(t, debug.Handler(c))
	b.ready()
	b.wait(`document.querySelector('#events').innerText.includes('Events are not recorded')`)
	b.do(chromedp.Click("#history"))
	b.wait(`document.querySelector('#history').innerText === 'Stop history'`)
	debugtest.Work(t, c, 6)
	b.wait(`document.querySelectorAll('#events tbody tr').length > 20`)
	b.wait(`document.querySelector('#holders').innerText.includes('debugtest.Work')`)

	_, err := c.Alloc(300<<20, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	b.wait(`!document.querySelector('#oom').hidden`)
	assert.Contains(t, b.text("#oom-line"), "an allocation of 300 MiB failed")
	assert.Regexp(t, `^Cause: .*\nHeld: \d+ blocks?, .*, allocated at pagetest.TestHistoryAndMoment`, b.text("#oom-why"))
	b.look("light", 1360, 1500)
	b.shot("oom-now")
	failed := `[...document.querySelectorAll('#events tbody tr')].find(r => r.innerText.includes('Out of memory'))`
	b.wait(failed)
	assert.NotContains(t, eval[string](b, failed+".innerText"), "0x", "it is at no address")
	live := b.tile("Live")
	require.NoError(t, c.Sync())
	more, err := c.Alloc(100<<20, nil)
	require.NoError(t, err)
	b.wait(tileOf("Live") + fmt.Sprintf(` !== %q`, live))
	b.do(chromedp.Click("#oom-see"))
	b.wait(tileOf("Live") + fmt.Sprintf(` === %q`, live))
	b.wait(`!document.querySelector('#oom-text').hidden`)
	b.wait(`document.querySelector('#holders').innerText.includes('debugtest.Work')`)
	assert.Contains(t, b.text("#oom-text"), "300 MiB")
	b.look("light", 1360, 1500)
	b.shot("oom")
	b.do(chromedp.Click("#oom-see"))
	b.wait(tileOf("Live") + fmt.Sprintf(` !== %q`, live))
	require.NoError(t, c.Free(more))

	// The first moment stays, however many failures follow.
	for range 20 {
		_, err = c.Alloc(400<<20, nil)
		require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	}
	b.wait(`document.querySelector('#oom-line').innerText.includes('400 MiB') && !document.querySelector('#oom-first').hidden`)
	b.shot("first-oom")
	b.do(chromedp.Click("#oom-first"))
	b.wait(tileOf("Live") + fmt.Sprintf(` === %q`, live))
	b.wait(`document.querySelector('#oom-line').innerText.includes('300 MiB')`)
}

// When the program was started anew, nothing of the one before is left.
func TestRestart(t *testing.T) {
	before := debugtest.NewPool(t, cupool.Config{History: debugtest.Everything(), Limit: 64 << 20})
	after := debugtest.NewPool(t, cupool.Config{History: debugtest.Everything(), Limit: 64 << 20})
	var now atomic.Value
	now.Store(debug.Handler(before))
	b := openBrowser(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { now.Load().(http.Handler).ServeHTTP(w, r) }))
	b.ready()
	_, err := before.WithLabel("before").Alloc(3<<20, nil)
	require.NoError(t, err)
	_, err = before.Alloc(100<<20, nil)
	require.ErrorIs(t, err, cupool.ErrOutOfMemory)
	b.wait(`!document.querySelector('#oom').hidden && document.querySelector('#events').innerText.includes('before')`)

	_, err = after.WithLabel("after").Alloc(5<<20, nil)
	require.NoError(t, err)
	now.Store(debug.Handler(after))
	b.wait(`document.querySelector('#oom').hidden && document.querySelector('#events').innerText.includes('after')`)
	assert.NotContains(t, b.text("#events"), "before")
	assert.Equal(t, "5 MiB", b.tile("Live"))
}

// When the private pool that is looked at is closed, the page shows the allocator, and nothing of the
// pool is left.
func TestPoolCloses(t *testing.T) {
	c := debugtest.NewPool(t, cupool.Config{History: debugtest.Everything()})
	p, err := c.NewPool(cupool.PoolConfig{Name: "closing"})
	require.NoError(t, err)
	_, err = c.WithLabel("weights").Alloc(3<<20, nil)
	require.NoError(t, err)
	x, err := p.WithLabel("of the pool").Alloc(5<<20, nil)
	require.NoError(t, err)
	b := openBrowser(t, debug.Handler(c))
	b.ready()
	b.do(chromedp.SetValue("#pool", "allocator/closing", chromedp.ByID), chromedp.Evaluate(`document.querySelector('#pool').dispatchEvent(new Event('change'))`, nil))
	b.wait(`document.querySelector('#events').innerText.includes('of the pool')`)
	require.NoError(t, p.Free(x))
	require.NoError(t, p.Close())
	b.wait(`document.querySelector('#events').innerText.includes('weights')`)
	assert.NotContains(t, b.text("#events"), "of the pool")
	b.wait(tileOf("Live") + ` === '3 MiB'`)
}

// frames scrolls, zooms and points at the map in each frame for a while, and returns the
// times of the page's own work in each, in milliseconds.
const frames = `(async () => {
	const map = document.querySelector('#map'), box = map.getBoundingClientRect(), took = [];
	const zoom = id => document.querySelector(id).click();
	for (let i = 0; i < 6; i++) zoom('#zoom-in');
	for (let i = 0; i < 180; i++) {
		const began = await new Promise(requestAnimationFrame), start = performance.now();
		if (i % 3) map.scrollTop = (map.scrollHeight - map.clientHeight) * i / 180;
		map.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + 20 + 5 * i % (box.width - 40), clientY: box.top + 20 + 7 * i % (box.height - 40) }));
		await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
		took.push(performance.now() - start);
	}
	took.sort((a, b) => a - b);
	zoom('#zoom-fit');
	return [took[90], took[171], took[179]];
})()`

// 100,000 blocks are shown, found and drawn, and each frame takes little.
func TestManyBlocks(t *testing.T) {
	n := testkit.Choose(100_000, 20_000)
	c := debugtest.NewPool(t, cupool.Config{MagazineBytes: -1})
	r := rand.New(rand.NewPCG(7, 7))
	label := c.WithLabel("parts")
	var all []cupool.Block
	for i := range n {
		from := cupool.Allocator(c)
		if i%3 == 0 {
			from = label
		}
		b, err := from.Alloc(512+r.Int64N(200_000), nil)
		require.NoError(t, err)
		all = append(all, b)
	}
	for i := 0; i < n; i += 5 {
		require.NoError(t, c.Free(all[i]))
	}
	b := openBrowser(t, debug.Handler(c))
	b.ready()
	b.wait(fmt.Sprintf(`document.querySelector('#tiles').innerText.includes('%d,')`, n*4/5/1000))
	b.look("light", 1360, 1000)
	b.shot("many")
	took := eval[[]float64](b, frames)
	t.Logf("%d blocks: frames of %.1f ms (median), %.1f ms (95 %%), %.1f ms (longest)", n, took[0], took[1], took[2])
	assert.Less(t, eval[int64](b, "document.querySelectorAll('*').length"), int64(2000), "elements of the page")
}

// TestPicture draws docs/debug-page.png of a program at work, for the README.
func TestPicture(t *testing.T) {
	if os.Getenv("CUPOOL_SHOTS") == "" {
		t.Skip("CUPOOL_SHOTS is not set")
	}
	c := debugtest.NewPool(t, cupool.Config{History: debugtest.Everything(), Limit: 1 << 30})
	debugtest.Work(t, c, 1)
	b := openBrowser(t, debug.Handler(c))
	b.look("light", 1280, 1180)
	b.ready()
	r := rand.New(rand.NewPCG(3, 3))
	activations := c.WithLabel("activations")
	var held []cupool.Block
	for i := range 90 {
		for i%30 < 20 && len(held) < 80 {
			x, err := activations.Alloc(500_000+r.Int64N(5<<20), nil)
			require.NoError(t, err)
			if held = append(held, x); len(held)%4 == 0 {
				break
			}
		}
		if i%30 >= 20 {
			for range min(len(held), 6) {
				require.NoError(t, c.Free(held[len(held)-1]))
				held = held[:len(held)-1]
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
	b.do(chromedp.Click(`input[name=by][value=label]`), chromedp.Focus("#map"))
	for i := 0; i < 30 || eval[bool](b, `!document.querySelector('#block .stack')`); i++ {
		b.do(chromedp.KeyEvent(kb.ArrowRight))
	}
	b.do(chromedp.Evaluate(`scrollTo(0, 0)`, nil))
	b.shot("debug-page")
}
