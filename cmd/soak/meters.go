package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/leaks"
	"github.com/cupool/cupool/internal/newfile"
)

// A sample is what is measured at one moment.
type sample struct {
	Seconds  float64 `json:"seconds"`
	Programs int64   `json:"programs"`
	process
	Reserved     int64 `json:"reserved"`      // bytes that allocators hold between programs
	Metadata     int64 `json:"metadata"`      // bytes of the allocators' books
	OpenStreams  int64 `json:"open_streams"`  // as the allocators count them
	Streams      int64 `json:"streams"`       // of the device
	Events       int64 `json:"events"`        // of the device
	Ranges       int64 `json:"ranges"`        // of addresses that the device gave
	AddressSpace int64 `json:"address_space"` // bytes in them
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
	s := sample{Seconds: time.Since(start).Seconds(), Programs: k.programs.Load(), process: processNow()}
	for i := range k.stats {
		if st := k.stats[i].Load(); st != nil {
			s.Reserved += st.All.ReservedBytes.Current
			s.Metadata += st.MetadataBytes
			s.OpenStreams += st.Streams
		}
	}
	if h, ok := heldBy(k.driver); ok {
		s.Streams, s.Events, s.Ranges, s.AddressSpace = int64(h.Streams), int64(h.Events), int64(h.Ranges), h.RangeBytes
	}
	return s
}

// watchMeters takes samples until ctx is done, and tells how far the run is. It writes
// the samples to the file for them.
func (k *soak) watchMeters(ctx context.Context, stdout io.Writer) (samples []sample) {
	tick := time.NewTicker(min(max(k.duration/400, 20*time.Millisecond), 5*time.Second))
	defer tick.Stop()
	start, told := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			if err := k.write(samples); err != nil {
				k.report("the samples are lost: %v", err)
			}
			return samples
		case <-tick.C:
		}
		s := k.measure(start)
		samples = append(samples, s)
		if part := int(20 * s.Seconds / k.duration.Seconds()); part > told {
			told = part
			fmt.Fprintf(stdout, "%7.0f s: %d programs, %d trainings, RSS %d MiB, Go heap %d MiB, reserved %d MiB, %d goroutines, %d streams, %d events\n",
				s.Seconds, s.Programs, k.trainings.Load(), s.RSS>>20, s.Heap>>20, s.Reserved>>20, s.Goroutines, s.Streams, s.Events)
		}
	}
}

// write writes samples to the file for them, if there is one.
func (k *soak) write(samples []sample) error {
	if k.out == "" {
		return nil
	}
	return newfile.Write(k.out, func(w io.Writer) (err error) {
		enc := json.NewEncoder(w)
		for i := 0; i < len(samples) && err == nil; i++ {
			err = enc.Encode(samples[i])
		}
		return err
	})
}

// A meter is a number of a sample that has to stay flat: its median in the last
// quarter of a run may be above that of the second quarter by a part of it, and
// by slack more. The first quarter is for warming up.
type meter struct {
	name  string
	of    func(*sample) int64
	part  float64
	slack int64
}

// The parts are a few times what quarters of a sound run differ by.
var meters = []meter{
	{"RSS", func(s *sample) int64 { return s.RSS }, 0.10, 32 << 20},
	{"address space of the process", func(s *sample) int64 { return s.VM }, 0.10, 256 << 20},
	{"Go's heap", func(s *sample) int64 { return s.Heap }, 0.10, 8 << 20},
	{"goroutines", func(s *sample) int64 { return s.Goroutines }, 0.10, 8},
	{"open files", func(s *sample) int64 { return s.Files }, 0, 4},
	{"reserved bytes", func(s *sample) int64 { return s.Reserved }, 0.10, 64 << 20},
	{"the allocators' books", func(s *sample) int64 { return s.Metadata }, 0.10, 1 << 20},
	{"open streams", func(s *sample) int64 { return s.OpenStreams }, 0.10, 8},
	{"the device's streams", func(s *sample) int64 { return s.Streams }, 0.10, 16},
	{"the device's events", func(s *sample) int64 { return s.Events }, 0.10, 64},
	{"ranges of addresses", func(s *sample) int64 { return s.Ranges }, 0.10, 64},
	{"address space of the device", func(s *sample) int64 { return s.AddressSpace }, 0.10, 64 << 20},
}

// shortest is the shortest run that fails when something grew. In less time
// allocators, caches and books are still getting as large as they become.
const shortest = 10 * time.Minute

// enoughSamples are what it takes to say that something grew.
const enoughSamples = 40

// grown says which meters did not stay flat, nothing for too few samples.
func grown(samples []sample) (what []string) {
	if len(samples) < enoughSamples {
		return nil
	}
	q := len(samples) / 4
	for _, m := range meters {
		second, last := m.median(samples[q:2*q]), m.median(samples[len(samples)-q:])
		if most := second + int64(m.part*float64(second)) + m.slack; last > most {
			what = append(what, fmt.Sprintf("%s grew from %d to %d (medians of the second and the last quarter; up to %d is flat)", m.name, second, last, most))
		}
	}
	return what
}

func (m *meter) median(samples []sample) int64 {
	vs := make([]int64, len(samples))
	for i := range samples {
		vs[i] = m.of(&samples[i])
	}
	slices.Sort(vs)
	return vs[len(vs)/2]
}
