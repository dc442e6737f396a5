package hostdev_test

import (
	"testing"

	"github.com/cupool/cupool/internal/device"
)

func BenchmarkDevice(b *testing.B) {
	d := open(b, 1<<30)
	s, e, p := newStream(b, d), newEvent(b, d), alloc(b, d, 64*mib)
	buf := make([]byte, 4096)
	works := []struct {
		name string
		f    func()
	}{
		{"record", func() { _ = d.RecordEvent(e, s) }},
		{"query", func() { _, _ = d.QueryEvent(e) }},
		{"memset_4K", func() { _ = d.Memset(p, 1, 4096, s) }},
		{"copyin_4K", func() { _ = d.CopyIn(p, buf, s) }},
		{"memset_1M_async", func() { _ = d.Memset(p, 0, mib, s) }},
		{"launch", func() { _ = d.Launch(s, func() {}) }},
		{"launch_and_sync", func() { _ = d.Launch(s, func() {}); _ = d.SyncStream(s) }},
		{"alloc_free_20M", func() { q, _ := d.MemAlloc(20 * mib); _ = d.MemFree(q) }},
		{"alloc_free_touch", func() { q := touch(b, d.MemAlloc, d.Memset); _ = d.MemFree(q) }},
	}
	for _, w := range works {
		b.Run(w.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w.f()
			}
			_ = d.SyncStream(s)
		})
	}
}

func touch(b *testing.B, alloc func(int64) (device.Ptr, error),
	set func(device.Ptr, byte, int64, device.Stream) error) device.Ptr {
	p, err := alloc(20 * mib)
	if err != nil {
		b.Fatal(err)
	}
	if err := set(p, 1, 20*mib, 0); err != nil {
		b.Fatal(err)
	}
	return p
}
