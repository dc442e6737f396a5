package snapshot

import (
	"cmp"
	"slices"
)

// Holder is what is held of a pool's memory on one stream under one label. Sizes
// are in bytes of whole blocks.
type Holder struct {
	Pool   string `json:"pool,omitempty"` // name of a private pool
	Stream uint64 `json:"stream_number"`  // in the order in which streams were made
	Label  string `json:"label,omitempty"`
	Rest   bool   `json:"rest,omitempty"` // blocks of any stream and label that a report did not look at, as there are too many

	Blocks  int64 `json:"blocks"`  // that are live
	Live    int64 `json:"live"`    // in them
	Pending int64 `json:"pending"` // freed while other streams use it
	Cached  int64 `json:"cached"`  // free
}

// Holders adds up who holds memory. The zero Holders is empty.
type Holders struct {
	index map[holderKey]int
	list  []Holder
	rests []Holder
	last  holderKey
	at    int
}

type holderKey struct {
	pool   string
	stream uint64
	label  string
}

// Add adds a block of a pool, which has a label only while it is live or pending.
func (t *Holders) Add(pool string, stream uint64, label string, state State, size int64) {
	k := holderKey{pool, stream, label}
	if len(t.list) == 0 || k != t.last {
		t.at, t.last = t.find(k), k
	}
	h := &t.list[t.at]
	switch state {
	case Live:
		h.Blocks++
		h.Live += size
	case Pending:
		h.Pending += size
	case Cached, Free:
		h.Cached += size
	}
}

// AddRest adds what is held of a pool by blocks that were not looked at.
func (t *Holders) AddRest(rest Holder) {
	rest.Rest = true
	t.rests = append(t.rests, rest)
}

// find returns the place of a holder in the list, where it is when it was not
// there.
func (t *Holders) find(k holderKey) int {
	if t.index == nil {
		t.index = map[holderKey]int{}
	}
	i, ok := t.index[k]
	if !ok {
		i = len(t.list)
		t.index[k] = i
		t.list = append(t.list, Holder{Pool: k.pool, Stream: k.stream, Label: k.label})
	}
	return i
}

// List returns who holds anything, the largest first: by what is live and pending,
// then by what is cached.
func (t *Holders) List() []Holder {
	list := slices.DeleteFunc(slices.Concat(t.list, t.rests), func(h Holder) bool { return h.Live+h.Pending+h.Cached == 0 })
	slices.SortStableFunc(list, func(a, b Holder) int {
		return cmp.Or(
			cmp.Compare(b.Live+b.Pending, a.Live+a.Pending), cmp.Compare(b.Cached, a.Cached),
			cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Label, b.Label),
		)
	})
	return list
}

// HoldersOf returns who holds the memory of snapshots, as Holders.List does.
func HoldersOf(of ...Snapshot) []Holder {
	var t Holders
	for _, s := range flat(of) {
		for i := range s.Segments {
			seg := &s.Segments[i]
			for j := range seg.Blocks {
				b := &seg.Blocks[j]
				t.Add(s.Pool, seg.Number, b.Label, b.State, b.Size)
			}
		}
	}
	return t.List()
}
