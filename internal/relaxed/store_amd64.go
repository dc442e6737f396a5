//go:build amd64 && !race

package relaxed

import (
	"unsafe"

	"github.com/cupool/cupool/internal/atomic"
)

// Reorders says whether a store may come later than the owner's next loads.
const Reorders = true

// On amd64 stores of words are atomic and stay in order. The owner's lock,
// when it is given back, makes them visible at the latest.

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Int64) SetOwned(v int64) {
	if atomic.Invariants && atomic.DelayInt64(&p.Int64, v) {
		return
	}
	*(*int64)(unsafe.Pointer(p)) = v
}

// AddOwned adds n. Nobody else may write meanwhile.
func (p *Int64) AddOwned(n int64) {
	if atomic.Invariants && atomic.DelayInt64(&p.Int64, p.Load()+n) {
		return
	}
	*(*int64)(unsafe.Pointer(p)) += n
}

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Uint64) SetOwned(v uint64) {
	if atomic.Invariants && atomic.DelayUint64(&p.Uint64, v) {
		return
	}
	*(*uint64)(unsafe.Pointer(p)) = v
}

// SetOwned stores v. Nobody else may write meanwhile.
func (p *Uint32) SetOwned(v uint32) {
	if atomic.Invariants && atomic.DelayUint32(&p.Uint32, v) {
		return
	}
	*(*uint32)(unsafe.Pointer(p)) = v
}
