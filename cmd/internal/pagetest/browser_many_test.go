package pagetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/debug"
	"github.com/cupool/cupool/internal/testkit"
)

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
func TestPageManyBlocks(t *testing.T) {
	n := testkit.Choose(100_000, 20_000)
	c := newPool(t, cupool.Config{MagazineBytes: -1})
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
