//go:build !amd64 || race

package relaxed

import "github.com/cupool/cupool/internal/atomic"

// Reorders says whether a store may come later than the owner's next loads.
const Reorders = false

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Int64) SetOwned(v int64) {
	if atomic.Invariants && atomic.DelayInt64(&p.Int64, v) {
		return
	}
	p.Store(v)
}

// AddOwned adds n. Nobody else may write meanwhile.
func (p *Int64) AddOwned(n int64) { p.SetOwned(p.Load() + n) }

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Uint64) SetOwned(v uint64) {
	if atomic.Invariants && atomic.DelayUint64(&p.Uint64, v) {
		return
	}
	p.Store(v)
}

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Uint32) SetOwned(v uint32) {
	if atomic.Invariants && atomic.DelayUint32(&p.Uint32, v) {
		return
	}
	p.Store(v)
}
