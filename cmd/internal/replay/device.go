package replay

import (
	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/simdev"
)

// Unlimited devices. A simulated one has nothing behind it; the host's
// memory is address space until it is touched.
const (
	unlimitedSim  = 64 << 40
	unlimitedHost = "host:1TiB"
)

// device is what a trace is replayed on, with its calls counted.
type device struct {
	cupool.Driver // to be given to the allocator
	meter         *meter
}

// openDevice opens what the options name and sees to their Capacity.
func openDevice(o *Options) (device, error) {
	d, err := o.open()
	if err != nil {
		return device{}, err
	}
	driver, m := newMeter(d)
	return device{driver, m}, nil
}

func (o *Options) isSim() bool { return o.Device == "" || o.Device == "sim" }

func (o *Options) open() (cupool.Driver, error) {
	if o.isSim() {
		capacity := o.Capacity
		if capacity == 0 {
			capacity = unlimitedSim
		}
		return simdev.New(simdev.Config{Capacity: capacity}), nil
	}
	if o.Capacity > 0 {
		o.Config.Limit = o.Capacity
	}
	if o.Device == "host" {
		return cupool.Open(unlimitedHost)
	}
	return cupool.Open(o.Device)
}
