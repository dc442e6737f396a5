package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/leaks"
)

// A sample is what is measured at one moment.
type sample struct {
	Seconds    float64 `json:"seconds"`
	Operations int64   `json:"operations"`
	process
	Reserved     int64 `json:"reserved"`      // bytes that the allocator and its pools hold of the device
	Live         int64 `json:"live"`          // bytes that the program holds
	Metadata     int64 `json:"metadata"`      // bytes of the allocators' books
	OpenStreams  int64 `json:"open_streams"`  // as the allocator counts them
	Streams      int64 `json:"streams"`       // of the device
	Events       int64 `json:"events"`        // of the device
	Ranges       int64 `json:"ranges"`        // of addresses that the device gave
	AddressSpace int64 `json:"address_space"` // bytes in them
	Pools        int64 `json:"pools"`         // private ones, also retired ones
}

// process is what the operating system and Go say of the program. What they do
// not say is 0.
type process struct {
	RSS        int64 `json:"rss"`     // bytes
	VM         int64 `json:"vm"`      // bytes of address space
	Heap       int64 `json:"go_heap"` // bytes that the last collection left
	Goroutines int64 `json:"goroutines"`
	Files      int64 `json:"files"` // open ones
}

func processNow() (p process) {
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := strings.Fields(string(text)); len(f) > 1 {
			p.VM, p.RSS = pages(f[0]), pages(f[1])
		}
	}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		p.Files = int64(len(files))
	}
	m := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(m)
	if m[0].Value.Kind() == metrics.KindUint64 {
		p.Heap = int64(m[0].Value.Uint64())
	}
	p.Goroutines = int64(runtime.NumGoroutine())
	return p
}

func pages(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n * int64(os.Getpagesize())
}

// heldBy returns what a device holds, where it says so.
func heldBy(d cupool.Driver) (leaks.Held, bool) {
	t, ok := d.(interface{ Held() leaks.Held })
	if !ok {
		return leaks.Held{}, false
	}
	return t.Held(), true
}

// measure takes a sample.
func (k *soak) measure(start time.Time) sample {
	s := sample{Seconds: time.Since(start).Seconds(), Operations: k.count.operations.Load(), process: processNow(), Live: k.bytes.Load()}
	pools := k.pool.Pools()
	s.Pools = int64(len(pools))
	for _, c := range append(pools, k.pool) {
		st := c.Stats()
		s.Reserved += st.All.ReservedBytes.Current
		s.Metadata += st.MetadataBytes
		if c == k.pool {
			s.OpenStreams = st.Streams
		}
	}
	if h, ok := heldBy(k.driver); ok {
		s.Streams, s.Events, s.Ranges, s.AddressSpace = int64(h.Streams), int64(h.Events), int64(h.Ranges), h.RangeBytes
	}
	return s
}

// watchMeters takes samples until ctx is done, writes them to the file for
// them, and tells how far the run is.
func (k *soak) watchMeters(ctx context.Context, stdout io.Writer) (samples []sample, err error) {
	out := io.Discard
	if k.out != "" {
		f, err := os.Create(k.out)
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		out = f
	}
	enc := json.NewEncoder(out)
	tick := time.NewTicker(min(max(k.duration/400, 20*time.Millisecond), 5*time.Second))
	defer tick.Stop()
	start, told := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return samples, err
		case <-tick.C:
		}
		s := k.measure(start)
		samples = append(samples, s)
		err = errors.Join(err, enc.Encode(s))
		if part := int(20 * s.Seconds / k.duration.Seconds()); part > told {
			told = part
			fmt.Fprintf(stdout, "%7.0f s: %d operations, RSS %d MiB, Go heap %d MiB, reserved %d MiB, %d goroutines, %d streams, %d events, %d pools; %d corruptions, %d leaks, %d false errors\n",
				s.Seconds, s.Operations, s.RSS>>20, s.Heap>>20, s.Reserved>>20, s.Goroutines, s.Streams, s.Events, s.Pools,
				k.found.corruptions.Load(), k.found.leaks.Load(), k.found.falseErrors.Load())
		}
	}
}
