// Package devices has the pools of several devices at once: one caching
// allocator for each GPU, which know of each other.
//
//	set, err := devices.OpenAll(devices.Config{})          // all GPUs
//	set, err := devices.Open(devices.Config{}, "cuda:0", "cuda:1")
//	set, err := devices.Open(devices.Config{}, "host:1GiB", "host:1GiB")
//
// A Set switches on peer access between its devices, so that work of one may
// touch the memory of another. It finds the pool of an address, copies between
// pools in the order of two streams, and counts for all of them. Streams and
// events are those of package cupool: a stream waits for another device's event or
// stream as it does for its own (Stream.Wait, Stream.WaitStream).
//
// Memory for all devices, which is managed or page-locked, comes from one more
// pool: see Share.
package devices

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/nilptr"
)

// Config sets up a Set. The zero Config is a good one.
type Config struct {
	// Pool is the configuration of every device's pool. Its Driver has to be nil.
	Pool cupool.Config
	// Each, where set, changes the configuration of the pool of device i, whose
	// Driver is set by then and stays.
	Each func(i int, pool *cupool.Config)
	// NoPeers leaves peer access off. Copies between devices work without.
	NoPeers bool
}

// A Set is the pools of several devices, numbered from 0 in the order in which
// they were named. All methods are safe from several goroutines, but no other
// call may overlap Close.
type Set struct {
	n           int // devices; the members after them are shared pools
	members     atomic.Pointer[[]*cupool.Pool]
	drivers     []cupool.Driver // that the Set opened
	unreachable []Pair

	mu     sync.Mutex
	agents map[route]*cupool.Stream
	closed int // members closed so far
}

// OpenAll opens all GPUs, as Open does. It fails with cupool.ErrNotSupported
// where there is none.
func OpenAll(cfg Config) (*Set, error) {
	gpus, err := cuda.Devices()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, g := range gpus {
		names = append(names, fmt.Sprintf("cuda:%d", g.Ordinal))
	}
	return Open(cfg, names...)
}

// Open opens devices by their names, which are those of cupool.Open, and makes
// their pools. Close closes the devices. It fails with a *cupool.ConfigError for two
// names of one kind of memory of a GPU, or as cupool.Open, cupool.New and New do, and
// then everything is closed again.
func Open(cfg Config, names ...string) (*Set, error) {
	var drivers []cupool.Driver
	for i, name := range names {
		d, err := cupool.Open(name)
		if err != nil {
			return nil, errors.Join(err, closeDrivers(drivers))
		}
		k := slices.IndexFunc(drivers, func(o cupool.Driver) bool { return isSameGPU(o, d) })
		drivers = append(drivers, d)
		if k >= 0 {
			err := &cupool.ConfigError{Field: fmt.Sprintf("names[%d]", i), Value: name, Reason: fmt.Sprintf("is names[%d] again; a device has one pool", k)}
			return nil, errors.Join(err, closeDrivers(drivers))
		}
	}
	s, err := New(cfg, drivers...)
	if err != nil {
		return nil, errors.Join(err, closeDrivers(drivers))
	}
	s.drivers = drivers
	return s, nil
}

// isSameGPU reports whether two Drivers are of the same memory of one GPU.
func isSameGPU(a, b cupool.Driver) bool {
	_, gpu := a.(cuda.Handles)
	return gpu && a.Name() == b.Name()
}

// New makes the pools of devices that the program has opened, and closes after
// the Set. It switches on peer access between all of them; see Unreachable for
// those that lack it. It fails with a *cupool.ConfigError, as cupool.New does, or
// with what a device says, and then no pool is left open.
func New(cfg Config, drivers ...cupool.Driver) (*Set, error) {
	switch {
	case len(drivers) == 0:
		return nil, &cupool.ConfigError{Field: "drivers", Value: 0, Reason: "a set has one device or more"}
	case !nilptr.Is(cfg.Pool.Driver):
		return nil, &cupool.ConfigError{Field: "Pool.Driver", Value: cfg.Pool.Driver.Name(), Reason: "must be nil; a set has a Driver for each device"}
	}
	s := &Set{n: len(drivers), agents: map[route]*cupool.Stream{}}
	var pools []*cupool.Pool
	s.members.Store(&pools)
	for i, d := range drivers {
		if nilptr.Is(d) {
			return nil, errors.Join(&cupool.ConfigError{Field: fmt.Sprintf("drivers[%d]", i), Reason: "must not be nil"}, s.closePools())
		}
		if k := s.deviceOf(d); k >= 0 {
			return nil, errors.Join(&cupool.ConfigError{Field: fmt.Sprintf("drivers[%d]", i), Value: d.Name(), Reason: fmt.Sprintf("is drivers[%d] again; a device has one pool", k)}, s.closePools())
		}
		c, err := newPool(cfg, i, d)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("cupool: the pool of device %d, %s: %w", i, d.Name(), err), s.closePools())
		}
		pools = append(pools, c)
	}
	if !cfg.NoPeers {
		if err := s.enablePeers(); err != nil {
			return nil, errors.Join(err, s.closePools())
		}
	}
	return s, nil
}

func newPool(cfg Config, i int, d cupool.Driver) (*cupool.Pool, error) {
	pool := cfg.Pool
	pool.Driver = d
	if cfg.Each != nil {
		cfg.Each(i, &pool)
	}
	pool.Driver = d
	return cupool.New(pool)
}

// deviceOf returns the number of the device that has a Driver, or -1.
func (s *Set) deviceOf(d cupool.Driver) int {
	return slices.IndexFunc(s.all(), func(c *cupool.Pool) bool { return c.Driver() == d })
}

// Len returns the number of devices.
func (s *Set) Len() int {
	if s == nil {
		return 0
	}
	return s.n
}

// Pool returns the pool of device i, nil for a number that no device has.
func (s *Set) Pool(i int) *cupool.Pool {
	if i < 0 || i >= s.Len() {
		return nil
	}
	return s.all()[i]
}

// Pools returns the pools of the devices.
func (s *Set) Pools() []*cupool.Pool { return slices.Clone(s.all()[:s.Len()]) }

// Shared returns the pools of memory for all devices, in the order of Share.
func (s *Set) Shared() []*cupool.Pool { return slices.Clone(s.all()[s.Len():]) }

func (s *Set) all() []*cupool.Pool {
	if s == nil || s.members.Load() == nil {
		return nil
	}
	return *s.members.Load()
}

// made fails for a Set that is nil, or that this package did not make.
func (s *Set) made(op string) error {
	if s.Len() == 0 {
		return fmt.Errorf("cupool: %s: the Set is nil, or New did not make it: %w", op, cupool.ErrInvalidHandle)
	}
	return nil
}

// of says which device an error comes from.
func (s *Set) of(c *cupool.Pool, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.name(c), err)
}

// name names the device of a pool: names of Drivers may be the same.
func (s *Set) name(c *cupool.Pool) string {
	if i := slices.Index(s.all(), c); i < s.n {
		return fmt.Sprintf("device %d, %s", i, c.Driver().Name())
	}
	return "shared memory, " + c.Driver().Name()
}

// has reports whether a pool is one of the Set's.
func (s *Set) has(c *cupool.Pool) bool { return slices.Contains(s.all(), c) }

// Sync waits until everything is done that was submitted to the streams of all
// devices. It fails with a *cupool.WaitError after the pools' WaitTimeout, with
// cupool.ErrClosed, or with what the devices say.
func (s *Set) Sync() error {
	if err := s.made("waiting for all devices"); err != nil {
		return err
	}
	var errs []error
	for _, c := range s.all() {
		errs = append(errs, s.of(c, c.Sync()))
	}
	return errors.Join(errs...)
}

// Close waits for the work of all devices, since work of one may use memory of
// another, and closes the pools, and the devices that Open opened. Where work is
// not done after the pools' WaitTimeout it returns a *cupool.WaitError and can be
// called again: no pool is closed before all work was waited for. So it does with
// cupool.ErrNotSupported where a pool's blocks are held (Pool.Hold). Other errors,
// such as a *cupool.LeakError for each pool with live blocks, come when
// everything is closed. Closing twice is cupool.ErrClosed.
func (s *Set) Close() error {
	if err := s.made("closing a set of devices"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed == len(s.all()) {
		return fmt.Errorf("cupool: closing a set of devices: %w", cupool.ErrClosed)
	}
	var late *cupool.WaitError
	if err := s.Sync(); errors.As(err, &late) { // other failures are Close's, too
		return err
	}
	err := s.closePools()
	if s.closed < len(s.all()) {
		return err
	}
	return errors.Join(err, closeDrivers(s.drivers))
}

// closePools closes the pools that are still open, up to one that stays so: its work is
// late, or its blocks are held.
func (s *Set) closePools() error {
	var errs []error
	for _, c := range s.all()[s.closed:] {
		err := c.Close()
		if err != nil {
			errs = append(errs, s.of(c, err))
		}
		if !errors.Is(c.Err(), cupool.ErrClosed) {
			break
		}
		s.closed++
	}
	return errors.Join(errs...)
}

func closeDrivers(drivers []cupool.Driver) error {
	var errs []error
	for _, d := range drivers {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}
