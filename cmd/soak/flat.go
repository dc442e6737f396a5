package main

import (
	"fmt"
	"slices"
	"time"
)

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
	{"live bytes", func(s *sample) int64 { return s.Live }, 0.10, 32 << 20},
	{"the allocator's books", func(s *sample) int64 { return s.Metadata }, 0.10, 1 << 20},
	{"open streams", func(s *sample) int64 { return s.OpenStreams }, 0.10, 8},
	{"the device's streams", func(s *sample) int64 { return s.Streams }, 0.10, 8},
	{"the device's events", func(s *sample) int64 { return s.Events }, 0.10, 64},
	{"ranges of addresses", func(s *sample) int64 { return s.Ranges }, 0.10, 64},
	{"address space of the device", func(s *sample) int64 { return s.AddressSpace }, 0.10, 64 << 20},
	{"private pools", func(s *sample) int64 { return s.Pools }, 0.10, 4},
}

// shortest is the shortest run that fails when something grew. In less time
// pools, caches and books are still getting as large as they become.
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
