package replay

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/trace"
)

// TorchResult is what PyTorch's default allocator makes of a trace.
type TorchResult struct {
	PeakReservedBytes int64
	DriverAllocs      int64
	DriverFrees       int64
	DriverUsModelled  float64
	FailedAllocs      int64
	Reserved          []Point // at every change
}

// TorchModel replays a trace by the rules of PyTorch's default allocator
// (c10/cuda/CUDACachingAllocator.cpp): sizes rounded to 512 bytes; small
// blocks, up to 1 MiB, from segments of 2 MiB, larger ones below 10 MiB from
// segments of 20 MiB, the rest from segments of their own size in units of
// 2 MiB; best fit by size and then age among the stream's free blocks; what
// is left over split off when it is at least 512 bytes (small) or more than
// 1 MiB (large). When the device is full, all wholly free segments go back
// to it. The waiting that record_stream adds is left out: a block that other
// streams use is free at once.
//
// capacity is the device's, in bytes, 0 for unlimited.
func TorchModel(t *trace.Trace, capacity int64) TorchResult {
	if capacity == 0 {
		capacity = math.MaxInt64
	}
	m := torchModel{capacity: capacity, pools: make([][2]torchPool, len(t.Streams))}
	blocks := make([]*torchBlock, t.Blocks)
	for i := range t.Events {
		before := m.reserved
		switch e := &t.Events[i]; e.Op {
		case trace.Alloc:
			if e.Size > 0 {
				blocks[e.ID] = m.alloc(e.Size, int(e.Stream))
			}
		case trace.Free:
			if b := blocks[e.ID]; b != nil {
				b.release()
				blocks[e.ID] = nil
			}
		}
		if m.reserved != before {
			m.res.Reserved = append(m.res.Reserved, Point{i + 1, m.reserved})
		}
	}
	m.res.DriverUsModelled = float64(m.cost) / float64(time.Microsecond)
	return m.res
}

// PyTorch's constants, in bytes.
const (
	torchMin         = 512      // kMinBlockSize
	torchSmall       = 1 << 20  // kSmallSize
	torchSmallBuffer = 2 << 20  // kSmallBuffer
	torchMinLarge    = 10 << 20 // kMinLargeAlloc
	torchLargeBuffer = 20 << 20 // kLargeBuffer
	torchRoundLarge  = 2 << 20  // kRoundLarge
)

type torchModel struct {
	capacity int64
	reserved int64
	segments int64          // made so far, which numbers them
	pools    [][2]torchPool // by stream: small, large
	cost     time.Duration
	res      TorchResult
}

// torchPool is a set of free blocks by size, segment and offset.
type torchPool []*torchBlock

type torchBlock struct {
	segment, offset, size int64
	pool                  *torchPool
	free                  bool
	prev, next            *torchBlock
}

func compareTorch(a, b *torchBlock) int {
	return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.segment, b.segment), cmp.Compare(a.offset, b.offset))
}

func (p *torchPool) insert(b *torchBlock) {
	b.free = true
	i, _ := slices.BinarySearchFunc(*p, b, compareTorch)
	*p = slices.Insert(*p, i, b)
}

func (p *torchPool) remove(b *torchBlock) {
	b.free = false
	i, _ := slices.BinarySearchFunc(*p, b, compareTorch)
	*p = slices.Delete(*p, i, i+1)
}

func (m *torchModel) alloc(size int64, stream int) *torchBlock {
	size = roundUp(size, torchMin)
	small := size <= torchSmall
	pool := &m.pools[stream][1]
	if small {
		pool = &m.pools[stream][0]
	}
	i, _ := slices.BinarySearchFunc(*pool, size, func(b *torchBlock, size int64) int { return cmp.Compare(b.size, size) })
	var b *torchBlock
	if i < len(*pool) {
		b = (*pool)[i]
		pool.remove(b)
	} else if b = m.grow(size, pool); b == nil {
		m.res.FailedAllocs++
		return nil
	}
	if rest := b.size - size; small && rest >= torchMin || !small && rest > torchSmall {
		r := &torchBlock{segment: b.segment, offset: b.offset + size, size: rest, pool: pool, prev: b, next: b.next}
		if r.next != nil {
			r.next.prev = r
		}
		b.next, b.size = r, size
		pool.insert(r)
	}
	return b
}

// grow makes a segment, nil when there is no memory for it.
func (m *torchModel) grow(size int64, pool *torchPool) *torchBlock {
	segment := roundUp(size, torchRoundLarge)
	switch {
	case size <= torchSmall:
		segment = torchSmallBuffer
	case size < torchMinLarge:
		segment = torchLargeBuffer
	}
	if segment > m.capacity-m.reserved {
		m.releaseCached()
		if segment > m.capacity-m.reserved {
			return nil
		}
	}
	m.reserved += segment
	m.segments++
	m.res.PeakReservedBytes = max(m.res.PeakReservedBytes, m.reserved)
	m.res.DriverAllocs++
	m.cost += simdev.Cost(simdev.MemAlloc, segment, 1)
	return &torchBlock{segment: m.segments, size: segment, pool: pool}
}

// releaseCached gives every wholly free segment back.
func (m *torchModel) releaseCached() {
	for s := range m.pools {
		for k := range m.pools[s] {
			p := &m.pools[s][k]
			*p = slices.DeleteFunc(*p, func(b *torchBlock) bool {
				if b.prev != nil || b.next != nil {
					return false
				}
				m.reserved -= b.size
				m.res.DriverFrees++
				m.cost += simdev.Cost(simdev.MemFree, b.size, 1)
				return true
			})
		}
	}
}

// release frees a block and merges it with its free neighbours.
func (b *torchBlock) release() {
	if p := b.prev; p != nil && p.free {
		b.pool.remove(p)
		b.offset, b.size, b.prev = p.offset, b.size+p.size, p.prev
		if b.prev != nil {
			b.prev.next = b
		}
	}
	if n := b.next; n != nil && n.free {
		b.pool.remove(n)
		b.size, b.next = b.size+n.size, n.next
		if b.next != nil {
			b.next.prev = b
		}
	}
	b.pool.insert(b)
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
