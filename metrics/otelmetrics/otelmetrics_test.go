package otelmetrics_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/metrics/internal/metrics"
	"github.com/cupool/cupool/metrics/otelmetrics"
)

func newPool(t *testing.T) *cupool.Pool {
	c, err := cupool.New(cupool.Config{Driver: simdev.New(simdev.Config{Name: "gpu"}), Limit: 1 << 30, Backing: cupool.BackingSegments})
	require.NoError(t, err)
	return c
}

// collect returns what a reader gets, by name.
func collect(t *testing.T, reader *sdk.ManualReader) map[string]metricdata.Metrics {
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	all := map[string]metricdata.Metrics{}
	for _, s := range got.ScopeMetrics {
		require.Equal(t, "github.com/cupool/cupool/metrics/otelmetrics", s.Scope.Name)
		for _, m := range s.Metrics {
			all[m.Name] = m
		}
	}
	return all
}

func TestRegister(t *testing.T) {
	c := newPool(t)
	p, err := c.NewPool(cupool.PoolConfig{Name: "tenant"})
	require.NoError(t, err)
	_, err = p.WithLabel("encoder").Alloc(3<<20, nil)
	require.NoError(t, err)

	reader := sdk.NewManualReader()
	r, err := otelmetrics.Register(sdk.NewMeterProvider(sdk.WithReader(reader)), c)
	require.NoError(t, err)
	got := collect(t, reader)
	require.Len(t, got, len(metrics.All()))

	of := func(pool, key, part string) attribute.Set {
		list := []attribute.KeyValue{attribute.String("device", "gpu"), attribute.String("pool", pool)}
		if key != "" {
			list = append(list, attribute.String(key, part))
		}
		return attribute.NewSet(list...)
	}
	point := func(value int64, at attribute.Set) metricdata.DataPoint[int64] {
		return metricdata.DataPoint[int64]{Value: value, Attributes: at}
	}
	for _, want := range []metricdata.Metrics{
		{Name: "cupool.grown", Description: "Allocations for which memory came from the device.", Data: metricdata.Sum[int64]{
			Temporality: metricdata.CumulativeTemporality, IsMonotonic: true,
			DataPoints: []metricdata.DataPoint[int64]{point(0, of("default", "", "")), point(1, of("tenant", "", ""))},
		}},
		{Name: "cupool.reserved", Unit: "By", Description: "Bytes held from the device, at present.", Data: metricdata.Sum[int64]{
			Temporality: metricdata.CumulativeTemporality,
			DataPoints: []metricdata.DataPoint[int64]{
				point(0, of("default", "kind", "small")), point(0, of("default", "kind", "large")),
				point(0, of("tenant", "kind", "small")), point(20<<20, of("tenant", "kind", "large")),
			},
		}},
		{Name: "cupool.limit", Unit: "By", Description: "Bytes that may be reserved. Absent without a limit.", Data: metricdata.Gauge[int64]{
			DataPoints: []metricdata.DataPoint[int64]{point(1<<30, of("default", "", "")), point(1<<30, of("tenant", "", ""))},
		}},
		{Name: "cupool.label_blocks", Unit: "{block}", Description: "Live blocks of a label, at present.", Data: metricdata.Sum[int64]{
			Temporality: metricdata.CumulativeTemporality,
			DataPoints:  []metricdata.DataPoint[int64]{point(1, of("tenant", "label", "encoder"))},
		}},
	} {
		metricdatatest.AssertEqual(t, want, got[want.Name], metricdatatest.IgnoreTimestamp())
	}

	require.Error(t, c.Close(), "a leak")
	require.Empty(t, collect(t, reader))
	require.NoError(t, r.Unregister())
	require.Empty(t, collect(t, reader))
}

// Names are those that OpenTelemetry allows, and no two metrics share one.
func TestNames(t *testing.T) {
	c := newPool(t)
	_, err := c.WithLabel("a").Alloc(1, nil)
	require.NoError(t, err)
	reader := sdk.NewManualReader()
	_, err = otelmetrics.Register(sdk.NewMeterProvider(sdk.WithReader(reader)), c)
	require.NoError(t, err)
	name, unit := regexp.MustCompile(`^cupool\.[a-z]+(_[a-z]+)*$`), regexp.MustCompile(`^(By|\{[a-z]+\}|)$`)
	for _, m := range collect(t, reader) {
		require.Regexp(t, name, m.Name)
		require.Regexp(t, unit, m.Unit, m.Name)
		require.NotContains(t, m.Name, "bytes")
		require.NotContains(t, m.Name, "total")
	}
}

func TestNoProvider(t *testing.T) {
	_, err := otelmetrics.Register(nil, newPool(t))
	require.ErrorIs(t, err, cupool.ErrInvalidHandle)
}
