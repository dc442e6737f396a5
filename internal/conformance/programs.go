package conformance

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/model"
	"github.com/cupool/cupool/internal/testkit"
)

// testPrograms runs random programs, on one goroutine and on several, and has
// internal/model judge every answer: what is live overlaps nothing, by address
// or in physical memory, no memory is reused before the work that may use it is
// done or ordered, blocks keep their contents, and the books are right.
func testPrograms(t *testing.T, e *env) {
	if e.opt.Wrap != nil {
		t.Skip("the programs make pools of their own")
	}
	d := e.open(t)
	defer func() { require.NoError(t, d.Close()) }()
	s, limit := testkit.Seed(t), e.cfg
	if limit.Limit == 0 && limit.Fraction == 0 {
		limit.Limit = 512 * mib
	}
	n := scaled(160)
	if e.cfg.Sanitize != (cupool.Sanitizers{}) { // which write and read all memory
		n = max(n/10, 4)
	}
	var steps, stitches, moves int64
	for i := range n {
		data := model.Random(choices(s, i))
		opt := model.Options{Device: d, Config: &e.cfg}
		if i%2 == 1 {
			opt.Config = &limit
		}
		opt.Together = 1 + i%4 // goroutines
		res := model.Run(data, opt)
		require.Empty(t, res.Errs, "program %d: %q\n%s", i, data, res.Log)
		steps, stitches, moves = steps+int64(res.Steps), stitches+res.Stats.Stitches, moves+res.Stats.Moves
	}
	t.Logf("%d steps, %d stitches, %d moves", steps, stitches, moves)
}
