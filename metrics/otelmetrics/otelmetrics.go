// Package otelmetrics hands the statistics of allocators to OpenTelemetry. Only
// programs that import it build OpenTelemetry's interface.
//
// The metrics are those of package prom, and an exporter to Prometheus gives them
// the same names: live_bytes is cupool.live with the unit By, live_blocks is
// cupool.live_blocks with the unit {block}, hits_total is cupool.hits. Counters are
// observable counters, peaks, limits and largest blocks are observable gauges, and
// other quantities, of which that of several pools is the sum, are observable
// up-down counters. The attributes are the labels of package prom: device, pool,
// kind and label.
package otelmetrics

import (
	"context"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/metrics/internal/metrics"
)

// scope is the name of the Meter.
const scope = "github.com/cupool/cupool/metrics/otelmetrics"

// Register has a provider's readers observe the statistics of allocators and of
// their private pools, those that are made later included, until Unregister of the
// Registration. A private pool may be given alone.
//
// A collection calls Stats of each pool once, which takes time in proportion to the
// number of streams and labels, however many blocks there are. An allocator that is
// closed or nil reports nothing. Pools of the same device and name are one: their counts
// and bytes are added, their limits and peaks are the largest. It fails with
// cupool.ErrInvalidHandle where the provider is nil, and with what the provider says.
func Register(provider metric.MeterProvider, allocators ...*cupool.Pool) (metric.Registration, error) {
	if provider == nil {
		return nil, fmt.Errorf("otelmetrics: the provider is nil: %w", cupool.ErrInvalidHandle)
	}
	meter := provider.Meter(scope)
	of := map[*metrics.Metric]metric.Int64Observable{}
	var all []metric.Observable
	for _, m := range metrics.All() {
		instrument, err := newInstrument(meter, m)
		if err != nil {
			return nil, fmt.Errorf("otelmetrics: making an instrument for %s: %w", m.Name, err)
		}
		of[m] = instrument
		all = append(all, instrument)
	}
	observe := func(_ context.Context, o metric.Observer) error {
		for _, s := range metrics.Read(allocators...) {
			attributes := []attribute.KeyValue{attribute.String("device", s.Device), attribute.String("pool", s.Pool)}
			if s.Metric.Key != "" {
				attributes = append(attributes, attribute.String(s.Metric.Key, s.Part))
			}
			o.ObserveInt64(of[s.Metric], s.Value, metric.WithAttributes(attributes...))
		}
		return nil
	}
	r, err := meter.RegisterCallback(observe, all...)
	if err != nil {
		return nil, fmt.Errorf("otelmetrics: registering: %w", err)
	}
	return r, nil
}

// newInstrument returns the instrument of a metric's type, name and unit.
func newInstrument(meter metric.Meter, m *metrics.Metric) (metric.Int64Observable, error) {
	name, unit := strings.TrimSuffix(m.Name, "_total"), ""
	switch last := name[strings.LastIndex(name, "_")+1:]; last {
	case "bytes":
		name, unit = strings.TrimSuffix(name, "_bytes"), "By"
	case "blocks", "segments", "streams":
		unit = "{" + strings.TrimSuffix(last, "s") + "}"
	}
	name = "cupool." + name
	help, in := metric.WithDescription(m.Help), metric.WithUnit(unit)
	switch m.Kind {
	case metrics.Counter:
		return meter.Int64ObservableCounter(name, help, in)
	case metrics.Level:
		return meter.Int64ObservableUpDownCounter(name, help, in)
	default:
		return meter.Int64ObservableGauge(name, help, in)
	}
}
