package gcpressure

import (
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/cupool/cupool/internal/realtime"
)

// Relieve runs Go's collector when the device fills up and tensors have lifetimes,
// before more bytes are taken. It returns how many blocks came free.
func (p *Pressure) Relieve(more int64, m Memory) (freed int, err error) {
	if !p.On.Load() || !p.mu.TryLock() {
		return 0, nil
	}
	defer p.mu.Unlock()
	start, held := time.Now(), m.Held()
	if start.Sub(p.sizedAt) > fresh {
		size, err := m.Obtainable(held)
		if err != nil {
			return 0, err
		}
		p.size, p.sizedAt = size, start
	}
	if !p.due(start, held+more) {
		return 0, nil
	}
	before := m.InUse()
	freed = p.run(m.Drain)
	p.note(start, time.Since(start), before-m.InUse())
	return freed, nil
}

// Collect runs Go's collector for a request that would be refused, or waits for
// whoever does so already, who may find what is lacking here. It is spared where
// it has been of no use lately. drain frees what cleanups gave back, and counts the
// blocks; Collect reports whether there may have been some.
func (p *Pressure) Collect(drain func() int) bool {
	before := p.runs.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	start := time.Now()
	switch {
	case p.runs.Load() != before:
		return true
	case !p.hopeful(start):
		return false
	}
	freed := p.run(drain)
	end := time.Now()
	p.noteRefused(end, end.Sub(start), freed)
	return freed > 0
}

// run runs Go's collector, twice as a tensor's owner is found only after the
// tensor.
func (p *Pressure) run(drain func() int) (freed int) {
	for range 2 {
		runtime.GC()
		awaitCleanups()
	}
	freed = drain()
	p.runs.Add(1)
	return freed
}

// cleanupWait is about the most time that cleanups get to run in.
const cleanupWait = 100 * time.Millisecond

// awaitCleanups waits, for some time, until the cleanups have run that the
// collector has found. They run on goroutines of their own.
func awaitCleanups() {
	counts := []metrics.Sample{{Name: "/gc/cleanups/queued:cleanups"}, {Name: "/gc/cleanups/executed:cleanups"}}
	metrics.Read(counts[:1])
	const looks = 1000
	for range looks {
		if metrics.Read(counts[1:]); counts[1].Value.Uint64() >= counts[0].Value.Uint64() {
			return
		}
		realtime.Sleep(cleanupWait / looks)
	}
}
