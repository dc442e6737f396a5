package prom_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/metrics/prom"
)

func newPool(t *testing.T) *cupool.Pool {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Name: "gpu"}), Limit: 1 << 30, Backing: cupool.BackingSegments})
	require.NoError(t, err)
	return c
}

// alloc allocates what every metric is about.
func alloc(t *testing.T, c *cupool.Pool) {
	p, err := c.NewPool(cupool.PoolConfig{Name: "tenant"})
	require.NoError(t, err)
	for _, a := range []cupool.Allocator{c, p, c.WithLabel("encoder"), p.WithLabel("a\xffb")} {
		for _, size := range []int64{1000, 3 << 20} {
			_, err := a.Alloc(size, nil)
			require.NoError(t, err)
		}
	}
}

// Names, units, types and texts are as Prometheus wants them.
func TestLint(t *testing.T) {
	c := newPool(t)
	alloc(t, c)
	problems, err := testutil.CollectAndLint(prom.NewCollector(c))
	require.NoError(t, err)
	require.Empty(t, problems)
}

// A registry that checks every metric finds nothing wrong, with several
// allocators of one device, and after they were closed.
func TestPedantic(t *testing.T) {
	a, b := newPool(t), newPool(t)
	alloc(t, a)
	alloc(t, b)
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(prom.NewCollector(a, b)))
	n, err := testutil.GatherAndCount(reg)
	require.NoError(t, err)
	require.Greater(t, n, 150)
	require.NoError(t, testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP cupool_live_bytes Bytes in blocks that the program holds, at present.
# TYPE cupool_live_bytes gauge
cupool_live_bytes{device="gpu",kind="large",pool="default"} 1.2582912e+07
cupool_live_bytes{device="gpu",kind="large",pool="tenant"} 1.2582912e+07
cupool_live_bytes{device="gpu",kind="small",pool="default"} 4096
cupool_live_bytes{device="gpu",kind="small",pool="tenant"} 4096
# HELP cupool_hits_total Allocations served without a call to the driver for memory.
# TYPE cupool_hits_total counter
cupool_hits_total{device="gpu",pool="default"} 4
cupool_hits_total{device="gpu",pool="tenant"} 4
# HELP cupool_label_bytes Bytes that were asked for and are live, of a label, at present.
# TYPE cupool_label_bytes gauge
cupool_label_bytes{device="gpu",label="a�b",pool="tenant"} 6.293456e+06
cupool_label_bytes{device="gpu",label="encoder",pool="default"} 6.293456e+06
`), "cupool_live_bytes", "cupool_hits_total", "cupool_label_bytes"))

	require.Error(t, a.Close(), "a leak")
	require.Error(t, b.Close(), "a leak")
	n, err = testutil.GatherAndCount(reg)
	require.NoError(t, err)
	require.Zero(t, n)
}

// Allocators of one device are told apart by a label of the program's own.
func TestWrapped(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	for _, name := range []string{"train", "serve"} {
		c := newPool(t)
		alloc(t, c)
		wrapped := prometheus.WrapRegistererWith(prometheus.Labels{"allocator": name}, reg)
		require.NoError(t, wrapped.Register(prom.NewCollector(c)))
	}
	n, err := testutil.GatherAndCount(reg, "cupool_limit_bytes")
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.Error(t, reg.Register(prom.NewCollector(newPool(t))), "one collector of all names is there")
}
