// Package metrics gives the statistics of allocators names, units and types, for
// the packages that hand them to systems which collect metrics.
package metrics

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/cupool/cupool"
)

// Kind says how a Metric changes.
type Kind int

const (
	Counter Kind = iota // a sum that grows
	Level               // a quantity of which that of several pools is the sum
	Bound               // a peak, a limit or the largest of several
)

// Metric is one quantity of every pool.
type Metric struct {
	Name string // with the unit at its end: bytes, or the plural of what is counted
	Help string
	Kind Kind
	Key  string // the dimension beyond device and pool: "kind", "label" or "" for none
}

// DefaultPool is what the pool of an allocator is called that has no name.
const DefaultPool = "default"

// Sample is the value of a metric. Its texts are valid UTF-8.
type Sample struct {
	Metric *Metric
	Device string
	Pool   string
	Part   string // the value of Metric.Key
	Value  int64
}

// All returns every metric, in the order in which Read has them.
func All() (all []*Metric) {
	for _, list := range [][]*reading{ofPool, ofMemory, ofKind, ofLabel} {
		for _, r := range list {
			all = append(all, &r.Metric)
		}
	}
	return all
}

// Read returns the metrics of allocators and of the private pools of those that
// New made. Each pool is asked once for its Stats. One that is closed has none,
// and nor have nil and the zero Pool. Pools of the same device and name are one: levels and counters
// are their sums, bounds the largest. Several allocators may be given that share
// pools.
func Read(allocators ...*cupool.Pool) []Sample {
	var r reader
	r.at = map[Sample]int{}
	seen := map[*cupool.Pool]bool{}
	for _, c := range allocators {
		for _, p := range family(c) {
			if !seen[p] {
				seen[p] = true
				r.pool(p)
			}
		}
	}
	order := map[*Metric]int{}
	for i, m := range All() {
		order[m] = i
	}
	slices.SortStableFunc(r.samples, func(a, b Sample) int { return cmp.Compare(order[a.Metric], order[b.Metric]) })
	return r.samples
}

// family returns an allocator with its private pools, or a private pool.
func family(c *cupool.Pool) []*cupool.Pool {
	if c.Name() != "" {
		return []*cupool.Pool{c}
	}
	return append([]*cupool.Pool{c}, c.Pools()...)
}

// reader collects samples.
type reader struct {
	samples []Sample
	at      map[Sample]int // by sample without value: where it is in samples
}

// pool adds the samples of a pool that is open.
func (r *reader) pool(c *cupool.Pool) {
	if _, err := c.Lookup(0); errors.Is(err, cupool.ErrClosed) || errors.Is(err, cupool.ErrInvalidHandle) {
		return
	}
	device, name := text(c.Driver().Name()), text(cmp.Or(c.Name(), DefaultPool))
	st := c.Stats()
	for _, m := range ofPool {
		if m.root && c.Name() != "" || m.optional && m.value(&st) == 0 {
			continue
		}
		r.add(Sample{&m.Metric, device, name, "", m.value(&st)})
	}
	for _, m := range ofKind {
		if m.Key == "" {
			r.add(Sample{&m.Metric, device, name, "", m.ofKind(&st.All)})
			continue
		}
		r.add(Sample{&m.Metric, device, name, "small", m.ofKind(&st.Small)})
		r.add(Sample{&m.Metric, device, name, "large", m.ofKind(&st.Large)})
	}
	if free, total, err := c.Driver().MemInfo(); err == nil && c.Name() == "" {
		for _, m := range ofMemory {
			r.add(Sample{&m.Metric, device, name, "", m.memory(free, total)})
		}
	}
	for _, l := range st.Labels {
		for _, m := range ofLabel {
			r.add(Sample{&m.Metric, device, name, text(l.Label), m.ofLabel(&l)})
		}
	}
}

// add adds a sample, to one with the same texts if there is one.
func (r *reader) add(s Sample) {
	key := s
	key.Value = 0
	i, ok := r.at[key]
	switch {
	case !ok:
		r.at[key] = len(r.samples)
		r.samples = append(r.samples, s)
	case s.Metric.Kind == Bound:
		r.samples[i].Value = max(r.samples[i].Value, s.Value)
	default:
		r.samples[i].Value += s.Value
	}
}

// text returns a name of the program as collectors accept it.
func text(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }
