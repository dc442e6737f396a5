package replay

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// Options say how to replay. The zero value is the simulated device without
// a limit and the allocator's defaults.
type Options struct {
	Device   string // "" or "sim", or a name that cupool.Open takes
	Capacity int64  // bytes of the device; 0: unlimited
	Backing  string // see Backings; "" is what Config says: by default vmm where the device has it, else segments
	Strategy string // see Strategies; "" is what Config says

	// Config is the rest of the allocator's settings. Its Driver is not used, and its
	// MagazineBytes with Magazines alone.
	Config cupool.Config

	// Magazines has the pool keep blocks of sizes that recur in magazines, as in a program.
	// Placement, and so the result, may then depend on which processor runs the replay.
	Magazines bool

	// Lag is how far the simulated device is behind the program, in pieces of work. Each
	// allocation and each use gives its stream one, and the device does them in the
	// program's order. With Config.GrowWait it goes on while the program waits, so that what
	// is reserved differs a little from replay to replay. 0: work is done when it is submitted.
	// At most a million.
	Lag int

	// Repeat is how often to replay, each time with a new allocator, for
	// NsPerEvent: the fastest counts, because other programs on the computer only
	// ever add to it. Everything else is of the first replay, the only one when
	// allocations fail. 0 is 1.
	Repeat int

	Explain  bool             // replay once more for Result.Explanation
	Verify   bool             // write contents and check them
	Samples  int              // how often to note the state of memory
	Progress func(events int) // called now and then with the events done since
}

const planned = "planned" // over virtual memory where the device has it

var (
	backings   = []cupool.Backing{cupool.BackingSegments, cupool.BackingVMM}
	strategies = []cupool.Strategy{cupool.BestFit, cupool.FirstFit, cupool.Segregated, cupool.PowerOfTwo}
)

// Backings returns the names that Options.Backing may have.
func Backings() string { return names(backings) + ", " + planned }

// Strategies returns the names that Options.Strategy may have.
func Strategies() string { return names(strategies) }

func names[T fmt.Stringer](values []T) string {
	var all []string
	for _, v := range values {
		all = append(all, v.String())
	}
	return strings.Join(all, ", ")
}

// set sets a part of the configuration by its name.
func set[T fmt.Stringer](part *T, name string, values []T) bool {
	for _, v := range values {
		if v.String() == name {
			*part = v
			return true
		}
	}
	return false
}

func (o *Options) planned() bool { return o.Backing == planned }

// Passes returns how often a trace is replayed unless allocations fail, which
// is how often Progress hears of each event.
func (o *Options) Passes() int {
	recording := 0
	if o.planned() {
		recording = 1
	}
	n := max(o.Repeat, 1) + recording
	if o.Explain {
		n += 1 + recording
	}
	return n
}

// Check returns what is wrong with the options.
func (o *Options) Check() error {
	trial := *o
	return trial.complete()
}

// complete fills in defaults and applies the names to Config.
func (o *Options) complete() error {
	if o.Capacity < 0 {
		return fmt.Errorf("negative capacity %d", o.Capacity)
	}
	if o.Lag < 0 || o.Lag > mostLag || o.Lag > 0 && !o.isSim() {
		return fmt.Errorf("lag %d: it is from 0 to %d, and for the simulated device", o.Lag, mostLag)
	}
	switch kind, _, _ := strings.Cut(o.Device, ":"); {
	case o.isSim():
		if s := o.Config.Sanitize; o.Verify || s.Canaries > 0 || s.Poison {
			return errors.New("the simulated device has no memory whose contents could be verified, as by -verify, sanitize_canaries and sanitize_poison")
		}
	case kind != "host" && !strings.HasPrefix(kind, "cuda"):
		return fmt.Errorf("unknown device %q: it is sim, host or cuda", o.Device)
	}
	if !o.Magazines {
		o.Config.MagazineBytes = -1
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
	switch {
	case !set(&o.Config.Strategy, o.Strategy, strategies):
		return fmt.Errorf("unknown strategy %q: it is one of %s", o.Strategy, Strategies())
	case o.Backing != "" && !o.planned() && !set(&o.Config.Backing, o.Backing, backings):
		return fmt.Errorf("unknown backing %q: it is one of %s", o.Backing, Backings())
	}
	return nil
}

// backingOf returns the name of the backing that a device gets.
func (o *Options) backingOf(d cupool.Driver) string {
	if o.Backing != "" {
		return o.Backing
	}
	if _, ok := d.(cupool.VirtualMemory); ok {
		return cupool.BackingVMM.String()
	}
	return cupool.BackingSegments.String()
}

// Unlimited devices. A simulated one has nothing behind it; the host's
// memory is address space until it is touched.
const (
	unlimitedSim  = 64 << 40
	unlimitedHost = "host:1TiB"
)

func (o *Options) isSim() bool { return o.Device == "" || o.Device == "sim" }

// open opens the device that the options name and sees to their Capacity.
func (o *Options) open() (cupool.Driver, error) {
	if o.isSim() {
		capacity := o.Capacity
		if capacity == 0 {
			capacity = unlimitedSim
		}
		return simdev.New(simdev.Config{Capacity: capacity, ManualEvents: o.Lag > 0, IdleEvents: true}), nil
	}
	if l := o.Config.Limit; o.Capacity > 0 && (l == 0 || o.Capacity < l) {
		o.Config.Limit = o.Capacity
	}
	if o.Device == "host" {
		return cupool.Open(unlimitedHost)
	}
	return cupool.Open(o.Device)
}
