//go:build !amd64 || race

package relaxed

// Reorders says whether a store may come later than the owner's next loads.
const Reorders = false

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Int64) SetOwned(v int64) { p.Store(v) }

// AddOwned adds n. Nobody else may write meanwhile.
func (p *Int64) AddOwned(n int64) { p.Store(p.Load() + n) }

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Uint64) SetOwned(v uint64) { p.Store(v) }

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Uint32) SetOwned(v uint32) { p.Store(v) }
