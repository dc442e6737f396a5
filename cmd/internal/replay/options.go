package replay

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cupool/cupool"
)

// Options say how to replay. The zero value is the simulated device without
// a limit and the allocator's defaults.
type Options struct {
	Device   string // "" or "sim", or a name that cupool.Open takes
	Capacity int64  // bytes of the device; 0: unlimited
	Backing  string // see Backings; "" is what Config says: by default vmm where the device has it, else segments
	Strategy string // see Strategies; "" is what Config says

	// Magazines lets the allocator keep blocks in its lock-free magazines,
	// as programs do by default. It makes placement, and so the result,
	// depend on which processor runs the replay.
	Magazines bool
	// Config is the rest of the allocator's settings. Its Driver and
	// MagazineBytes are not used.
	Config cupool.Config

	// Repeat is how often to replay, each time with a new allocator, for
	// NsPerEvent: each part of the trace counts with its fastest time, because
	// other programs on the computer only ever add to it. Everything else is
	// of the first replay, the only one when allocations fail. 0 is 1.
	Repeat int

	// Explain makes Result.Explanation, of the first replay. Each event of it is
	// timed for itself, so that NsPerEvent is too high unless Repeat is more.
	Explain bool

	Verify   bool                     // write contents and check them
	Samples  int                      // how often to note the state of memory
	Progress func(events int)         // called now and then with the events done since
	Inspect  func(*cupool.Pool) error // called after the last event, with blocks still live
}

// A choice is a value of an option. set is nil for what this build does not
// have.
type choice struct {
	name string
	set  func(*cupool.Config)
}

var (
	backings = []choice{
		{"segments", func(c *cupool.Config) { c.Backing = cupool.BackingSegments }},
		{"vmm", func(c *cupool.Config) { c.Backing = cupool.BackingVMM }},
		{backingPlanned, func(*cupool.Config) {}}, // over vmm where the device has it
	}
	strategies = []choice{
		{"best-fit", func(c *cupool.Config) { c.Strategy = cupool.BestFit }},
		{"first-fit", func(c *cupool.Config) { c.Strategy = cupool.FirstFit }},
		{"segregated", func(c *cupool.Config) { c.Strategy = cupool.Segregated }},
		{"power-of-two", func(c *cupool.Config) { c.Strategy = cupool.PowerOfTwo }},
	}
)

const backingPlanned = "planned"

func (o *Options) planned() bool { return o.Backing == backingPlanned }

// Passes returns how often a trace is replayed unless allocations fail, which
// is how often Progress hears of each event.
func (o *Options) Passes() int {
	n := max(o.Repeat, 1)
	if o.planned() {
		n++ // to be recorded
	}
	return n
}

// Backings returns the names that Options.Backing may have.
func Backings() string { return names(backings) }

// Strategies returns the names that Options.Strategy may have.
func Strategies() string { return names(strategies) }

func names(choices []choice) string {
	var all []string
	for _, c := range choices {
		all = append(all, c.name)
	}
	return strings.Join(all, ", ")
}

// Check returns what is wrong with the options.
func (o *Options) Check() error {
	trial := *o
	return trial.complete()
}

// complete fills in defaults and applies the choices to Config.
func (o *Options) complete() error {
	if o.Capacity < 0 {
		return fmt.Errorf("negative capacity %d", o.Capacity)
	}
	switch kind, _, _ := strings.Cut(o.Device, ":"); {
	case o.Device == "" || o.Device == "sim":
		if o.Verify {
			return errors.New("the simulated device has no memory whose contents could be verified")
		}
	case kind != "host" && !strings.HasPrefix(kind, "cuda"):
		return fmt.Errorf("unknown device %q: it is sim, host or cuda", o.Device)
	}
	o.Config.MagazineBytes = -1
	if o.Magazines {
		o.Config.MagazineBytes = 0
	}
	if o.Strategy == "" {
		o.Strategy = o.Config.Strategy.String()
	}
	if o.Backing == "" && (o.Config.Backing != cupool.BackingAuto || o.Config.MaxSplit > 0) {
		o.Backing = cupool.BackingSegments.String()
		if o.Config.MaxSplit == 0 {
			o.Backing = o.Config.Backing.String()
		}
	}
	if err := apply("strategy", strategies, o.Strategy, &o.Config); err != nil || o.Backing == "" {
		return err
	}
	return apply("backing", backings, o.Backing, &o.Config)
}

// backingOf returns the name of the backing that a device gets.
func (o *Options) backingOf(d cupool.Driver) string {
	if o.Backing != "" {
		return o.Backing
	}
	if _, ok := d.(cupool.VirtualMemory); ok {
		return "vmm"
	}
	return "segments"
}

func apply(what string, choices []choice, name string, cfg *cupool.Config) error {
	for _, c := range choices {
		if c.name != name {
			continue
		}
		c.set(cfg)
		return nil
	}
	return fmt.Errorf("unknown %s %q: it is one of %s", what, name, names(choices))
}
