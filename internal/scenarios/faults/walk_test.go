package faults_test

import (
	"testing"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/conformance"
	"github.com/cupool/cupool/internal/simdev"
	"github.com/cupool/cupool/internal/testkit/pooltest"
)

// TestFaultWalk makes every driver call of a long program fail in turn, on both
// devices and with both backings.
func TestFaultWalk(t *testing.T) {
	sim := func(cfg simdev.Config) func(*testing.T) cupool.Driver {
		return func(*testing.T) cupool.Driver { return simdev.New(cfg) }
	}
	manual := simdev.Config{ManualEvents: true, FreshAddresses: true}
	for _, x := range []struct {
		name string
		open func(*testing.T) cupool.Driver
		cfg  cupool.Config
		opt  conformance.Options
	}{
		{"host/default", pooltest.OpenHost, cupool.Config{}, conformance.Options{}},
		{"host/segments", pooltest.OpenHost, cupool.Config{Backing: cupool.BackingSegments}, conformance.Options{}},
		{"sim/default", sim(simdev.Config{}), cupool.Config{}, conformance.Options{NoContents: true}},
		{"sim/segments", sim(simdev.Config{}), cupool.Config{Backing: cupool.BackingSegments}, conformance.Options{NoContents: true}},
		{"sim_manual/default", sim(manual), cupool.Config{}, conformance.Options{NoContents: true, WaitsRun: true}},
		{"sim_manual/segments", sim(manual), cupool.Config{Backing: cupool.BackingSegments}, conformance.Options{NoContents: true}},
	} {
		t.Run(x.name, func(t *testing.T) {
			conformance.Walk(t, x.open, x.cfg, x.opt)
		})
	}
}
