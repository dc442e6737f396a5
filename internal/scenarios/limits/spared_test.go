package limits_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// fragmenting leaves two segments of 100 MiB with a block of 2 MiB each, and a whole
// one, and serves much while these blocks live, so that it spares large segments what
// lives as long.
var fragmenting = "a=100M free:a k1=2M a=100M b=98M free:a k2=2M free:b a=100M " + strings.Repeat("x=90M free:x ", 10)

// A block that is likely to live long goes into no large segment. A wholly free one
// goes back for what the heap grows by.
func TestSparedSegments(t *testing.T) {
	const rest = "0 large: [Live 2M][Free 98M]; 0 large: [Live 2M][Free 98M]"
	pooltest.RunScripts(t, map[string][2]string{
		"not in one that was in use": {fragmenting + "k3=2M", rest + "; 0 large: [Live 100M]; 0 large: [Live 2M][Free 18M]"},
		"nor in a whole one":         {fragmenting + "free:a k3=2M", rest + "; 0 large: [Live 2M][Free 18M]"},
		"small ones share":           {fragmenting + "free:a k3=2M k4=3M", rest + "; 0 large: [Live 2M][Live 3M][Free 15M]"},
		"what dies soon may":         {fragmenting + "free:a k3=40M", "0 large: [Live 2M][Live 40M][Free 58M]; 0 large: [Live 2M][Free 98M]; 0 large: [Free 100M]"},
	}, 1<<30)
}

// Where the heap should not or cannot grow, it takes what it would spare.
func TestSparedServes(t *testing.T) {
	const want = "0 large: [Live 2M][Live 2M][Free 96M]; 0 large: [Live 2M][Free 98M]; 0 large: [Live 100M]"
	script := map[string][2]string{"": {fragmenting + "k3=2M", want}}
	t.Run("the device is full", func(t *testing.T) { pooltest.RunScripts(t, script, 301*pooltest.MiB) })
	t.Run("soft limit", func(t *testing.T) {
		pooltest.RunScripts(t, script, 1<<30, func(cfg *cupool.Config) { cfg.SoftLimit = 301 * pooltest.MiB })
	})
	for name, change := range map[string]func(*cupool.Config){
		"first fit": func(cfg *cupool.Config) { cfg.Strategy = cupool.FirstFit },
		"MaxSplit":  func(cfg *cupool.Config) { cfg.MaxSplit = 200 * pooltest.MiB },
	} {
		t.Run(name, func(t *testing.T) { pooltest.RunScripts(t, script, 1<<30, change) })
	}
}

// A segment that would be spared is not taken over from a closed stream.
func TestSparedStays(t *testing.T) {
	c, d := pooltest.New(t, 1<<30)
	x := pooltest.NewScript(t, c, d).Run(fragmenting + "x=150M@1 free:x close:1 k3=2M")
	require.Zero(t, c.Stats().Moves, x.Layout())
}

// A pool gets on with giving large segments back that it needs again, by what it serves
// meanwhile. Where it serves little, and with small ones, it comes to rest.
func TestRegretsByServed(t *testing.T) {
	again := func(size string) string { return strings.Repeat("a="+size+" free:a empty ", 5) }
	served, idle := strings.Repeat("x=150M free:x ", 7)+"empty ", "b=90M c=90M d=90M free:b free:c free:d "
	for name, c := range map[string]struct {
		ops  string
		want int64 // MiB
	}{
		"much was served":   {again("100M") + served + idle + "a=100M", 190},
		"little was served": {again("100M") + idle + "a=100M", 370},
		"small segments":    {again("1M") + served + idle + "a=1M", 272},
	} {
		t.Run(name, func(t *testing.T) {
			p, d := pooltest.New(t, 8<<30)
			x := pooltest.NewScript(t, p, d).Run(c.ops)
			require.EqualValues(t, c.want*pooltest.MiB, p.Stats().All.ReservedBytes.Current, x.Layout())
		})
	}
}
