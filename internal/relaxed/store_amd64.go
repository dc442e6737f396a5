//go:build amd64 && !race

package relaxed

import "unsafe"

// Reorders says whether a store may come later than the owner's next loads.
const Reorders = true

// On amd64 stores of words are atomic and stay in order. The owner's lock,
// when it is given back, makes them visible at the latest.

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Int64) SetOwned(v int64) { *(*int64)(unsafe.Pointer(p)) = v }

// AddOwned adds n. Nobody else may write meanwhile.
func (p *Int64) AddOwned(n int64) { *(*int64)(unsafe.Pointer(p)) += n }

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Uint64) SetOwned(v uint64) { *(*uint64)(unsafe.Pointer(p)) = v }

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Uint32) SetOwned(v uint32) { *(*uint32)(unsafe.Pointer(p)) = v }
