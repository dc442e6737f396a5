// Package prom has the statistics of allocators collected by Prometheus. Only
// programs that import it build Prometheus' client library.
//
// The metrics are the fields of cupool.Stats, PoolStats and LabelStats, and the memory of the
// device as its driver says (device_free_bytes, device_size_bytes). Their names
// begin with cupool_. Sizes are in bytes. All have the labels
//
//   - device: Driver.Name.
//   - pool: the name of a private pool, or "default" for an allocator that New
//     made.
//   - kind: "small" for requests up to Config.SmallLimit, "large" for others.
//     It is for what PoolStats has, but for peaks, which are of both at once.
//   - label: a name of Pool.WithLabel. It is for what LabelStats has. Every
//     name makes eight series that stay until Pool.ForgetLabels drops them, so a
//     program gives labels to its parts, and not to its requests.
//
// Each quantity X of PoolStats and LabelStats, such as live_bytes, is four metrics:
// cupool_X at present, cupool_peak_X, and the counters cupool_added_X_total and
// cupool_removed_X_total. Ratios are left to queries:
//
//	rate(cupool_hits_total[5m]) / (rate(cupool_hits_total[5m]) + rate(cupool_mapped_total[5m]) + rate(cupool_grown_total[5m]))
//	(cupool_cached_bytes - cupool_largest_free_bytes) / ((sum without (kind) (cupool_live_bytes)) + cupool_pending_bytes + cupool_cached_bytes)
//	sum by (device) (cupool_reserved_bytes)
//
// Folder operate beside this one has alert rules and a dashboard for Grafana.
package prom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/metrics/internal/metrics"
)

// NewCollector returns a collector of the statistics of allocators and of their
// private pools, those that are made later included. A private pool may be given
// alone.
//
// A scrape calls Stats of each pool once, which takes time in proportion to the number
// of streams and labels, however many blocks there are. An
// allocator that is closed or nil reports nothing. Pools of the same device and name are
// one: their counts and bytes are added, their limits and peaks are the largest.
// One collector serves all allocators of a program; to tell those of one device
// apart, register a collector for each with prometheus.WrapRegistererWith. The
// collector is safe from several goroutines.
func NewCollector(allocators ...*cupool.Pool) prometheus.Collector {
	c := &collector{allocators: allocators, descs: map[*metrics.Metric]*prometheus.Desc{}}
	for _, m := range metrics.All() {
		names := []string{"device", "pool"}
		if m.Key != "" {
			names = append(names, m.Key)
		}
		c.descs[m] = prometheus.NewDesc("cupool_"+m.Name, m.Help, names, nil)
	}
	return c
}

type collector struct {
	allocators []*cupool.Pool
	descs      map[*metrics.Metric]*prometheus.Desc
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for _, s := range metrics.Read(c.allocators...) {
		kind, labels := prometheus.GaugeValue, []string{s.Device, s.Pool}
		if s.Metric.Kind == metrics.Counter {
			kind = prometheus.CounterValue
		}
		if s.Metric.Key != "" {
			labels = append(labels, s.Part)
		}
		to <- prometheus.MustNewConstMetric(c.descs[s.Metric], kind, float64(s.Value), labels...)
	}
}
