package snapshot

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/google/pprof/profile"

	"github.com/cupool/cupool/internal/intern"
)

// NotRecorded is the function that a profile has memory under whose allocation was
// not recorded.
const NotRecorded = "(not recorded)"

// The places of a profile's values.
const (
	allocObjects = iota
	allocSpace
	inuseObjects
	inuseSpace
	values
)

// WriteProfile writes the live blocks of snapshots, with those of their Pools, for go
// tool pprof: compressed, with the sample types of Go's heap profile,
// inuse_space the default. Sizes are in bytes as requested. Samples have the
// labels "label", "pool" and "stream" (its number) to be used with -tagfocus or
// -tagroot. No program file is needed to show it.
//
// A block whose allocation was recorded counts as often as it was sampled for, so
// that sums are unbiased. What is live beyond these sums stands under the
// function NotRecorded, by pool, stream and label: with a history of every
// allocation nothing does, and without one, everything.
//
// alloc_objects and alloc_space are what was allocated since the history began, from
// the Totals; where no snapshot has any, they are as inuse_. WriteProfile returns the error of w,
// or cupool.ErrInvalidHandle for a nil one.
func WriteProfile(w io.Writer, of ...Snapshot) error {
	if w == nil {
		return errNoWriter
	}
	of = flat(of)
	p := newProfile()
	p.total = slices.ContainsFunc(of, func(s Snapshot) bool { return len(s.Totals) > 0 })
	for i := range of {
		p.addLive(&of[i])
		p.addTotals(&of[i])
	}
	return p.Write(w)
}

// profiler makes a profile.
type profiler struct {
	profile.Profile
	functions map[string]*profile.Function
	locations map[Frame]*profile.Location
	stacks    intern.Stacks[Frame]
	samples   map[sampleKey]*profile.Sample
	sums      map[*profile.Sample]*[values]float64
	total     bool // alloc_ comes from Totals
}

type sampleKey struct {
	holderKey
	stack int // its number
}

func newProfile() *profiler {
	p := &profiler{
		functions: map[string]*profile.Function{}, locations: map[Frame]*profile.Location{},
		samples: map[sampleKey]*profile.Sample{}, sums: map[*profile.Sample]*[values]float64{},
	}
	p.SampleType = []*profile.ValueType{
		{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"},
		{Type: "inuse_objects", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"},
	}
	p.DefaultSampleType = "inuse_space"
	p.PeriodType, p.Period = &profile.ValueType{Type: "space", Unit: "bytes"}, 1
	p.TimeNanos = time.Now().UnixNano()
	p.Mapping = []*profile.Mapping{{ID: 1, File: "device memory", HasFunctions: true, HasFilenames: true, HasLineNumbers: true}}
	p.Comments = []string{
		"cupool: device memory by the Go code that allocated it",
		NotRecorded + ": live, but allocated while nothing was recorded, or beyond what samples stand for",
	}
	return p
}

// rest is what is live of a pool, on a stream and under a label, and not recorded.
type rest struct{ objects, space float64 }

// addLive adds the live blocks of a snapshot.
func (p *profiler) addLive(s *Snapshot) {
	p.Comments = append(p.Comments, fmt.Sprintf("device %s", s.Device))
	rests := map[holderKey]*rest{}
	var order []holderKey
	for i := range s.Segments {
		seg := &s.Segments[i]
		for j := range seg.Blocks {
			b := &seg.Blocks[j]
			if b.State != Live {
				continue
			}
			k := holderKey{s.Pool, seg.Number, b.Label}
			r := rests[k]
			if r == nil {
				r = &rest{}
				rests[k], order = r, append(order, k)
			}
			r.objects++
			r.space += float64(b.Requested)
			if len(b.Stack) > 0 {
				n := b.weight()
				r.objects -= n
				r.space -= n * float64(b.Requested)
				p.add(b.Stack, k, n, n*float64(b.Requested))
			}
		}
	}
	for _, k := range order {
		if r := rests[k]; r.space >= 0.5 || r.objects >= 0.5 {
			p.add(Stack{{Function: NotRecorded}}, k, max(r.objects, 0), max(r.space, 0))
		}
	}
}

// weight returns how many blocks of its size a recorded block stands for. A sanitizer
// records all.
func (b *Block) weight() float64 { return max(b.Weight, 1) }

// add adds live blocks of a stack.
func (p *profiler) add(stack Stack, k holderKey, objects, space float64) {
	v := p.sums[p.sample(stack, k)]
	v[inuseObjects] += objects
	v[inuseSpace] += space
	if !p.total {
		v[allocObjects] += objects
		v[allocSpace] += space
	}
}

// addTotals adds what was allocated in a pool.
func (p *profiler) addTotals(of *Snapshot) {
	for _, t := range of.Totals {
		stack := t.Stack
		if len(stack) == 0 {
			stack = Stack{{Function: NotRecorded}}
		}
		v := p.sums[p.sample(stack, holderKey{pool: of.Pool, label: t.Label, stream: anyStream})]
		v[allocObjects] += t.Allocations
		v[allocSpace] += t.Bytes
	}
}

// anyStream is the stream of what is counted for all of them.
const anyStream = math.MaxUint64

// sample returns the sample of a stack.
func (p *profiler) sample(stack Stack, k holderKey) *profile.Sample {
	key := sampleKey{k, p.stacks.Number(stack)}
	if s := p.samples[key]; s != nil {
		return s
	}
	s := &profile.Sample{Value: make([]int64, values), Label: map[string][]string{}}
	if k.stream != anyStream {
		s.Label["stream"] = []string{strconv.FormatUint(k.stream, 10)}
	}
	if k.pool != "" {
		s.Label["pool"] = []string{k.pool}
	}
	if k.label != "" {
		s.Label["label"] = []string{k.label}
	}
	for _, f := range stack {
		s.Location = append(s.Location, p.location(f))
	}
	p.samples[key], p.sums[s] = s, new([values]float64)
	p.Sample = append(p.Sample, s)
	return s
}

// location returns the place of a line of a function.
func (p *profiler) location(f Frame) *profile.Location {
	if l := p.locations[f]; l != nil {
		return l
	}
	name := f.Function + "\n" + f.File
	fn := p.functions[name]
	if fn == nil {
		fn = &profile.Function{ID: uint64(len(p.Function) + 1), Name: f.Function, SystemName: f.Function, Filename: f.File}
		p.functions[name], p.Function = fn, append(p.Function, fn)
	}
	id := uint64(len(p.Location) + 1)
	l := &profile.Location{ID: id, Address: id, Mapping: p.Mapping[0], Line: []profile.Line{{Function: fn, Line: int64(f.Line)}}}
	p.locations[f], p.Location = l, append(p.Location, l)
	return l
}

// Write rounds the sums and writes the profile.
func (p *profiler) Write(w io.Writer) error {
	for s, sum := range p.sums {
		for i, v := range sum {
			s.Value[i] = whole(v)
		}
	}
	if err := p.Profile.Write(w); err != nil {
		return fmt.Errorf("cupool: writing a profile: %w", err)
	}
	return nil
}
