package devices

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/nilptr"
)

// A Pair is two devices of a Set between which peer access is off: work of device
// From may not touch the memory of device To. Err says why, and matches
// cupool.ErrNotSupported. Copies between them work all the same, unless they are of
// different kinds, as a GPU and the host device are.
type Pair struct {
	From, To int
	Err      error
}

// Unreachable returns the pairs of devices that have no peer access, one for each
// direction. With Config.NoPeers there are none.
func (s *Set) Unreachable() []Pair {
	if s == nil {
		return nil
	}
	return slices.Clone(s.unreachable)
}

// enablePeers switches peer access on between all devices. What cannot be is
// noted; any other error ends it.
func (s *Set) enablePeers() error {
	for i, from := range s.all() {
		for j, to := range s.all() {
			if i == j {
				continue
			}
			err := enable(from.Driver(), to.Driver())
			switch {
			case errors.Is(err, cupool.ErrNotSupported):
				s.unreachable = append(s.unreachable, Pair{i, j, err})
			case err != nil:
				return fmt.Errorf("cupool: peer access of device %d to device %d: %w", i, j, err)
			}
		}
	}
	return nil
}

// enable lets work of one device touch the memory of another.
func enable(from, to cupool.Driver) error {
	d, ok := from.(device.Peers)
	if !ok {
		return fmt.Errorf("cupool: %s has no peers: %w", from.Name(), cupool.ErrNotSupported)
	}
	return d.EnablePeer(to)
}

// Share makes one more pool, of memory that all devices use: of a Driver of
// managed or page-locked memory, such as cupool.Open("cuda:0,pinned") returns, or
// of one more host device among host devices. The program closes d after the Set.
//
// Work on a stream of any device may use its blocks, as it may use those of
// another stream: the stream waits for the one that the block was allocated for
// (Stream.WaitStream) before its first use, and RecordStream or FreeOn of the Set
// comes after the last.
//
// It fails with a *cupool.ConfigError for memory that the host cannot touch, with
// cupool.ErrNotSupported where a device cannot touch it, with cupool.ErrClosed, or
// as cupool.New does.
func (s *Set) Share(d cupool.Driver, cfg cupool.Config) (*cupool.Pool, error) {
	if err := s.made("sharing memory"); err != nil {
		return nil, err
	}
	if nilptr.Is(d) {
		return nil, &cupool.ConfigError{Field: "Driver", Reason: "must not be nil; it is of managed or pinned memory"}
	}
	if !d.HostAccessible() {
		return nil, &cupool.ConfigError{Field: "Driver", Value: d.Name(), Reason: "is one device's memory; managed or pinned memory is for all"}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed > 0 {
		return nil, fmt.Errorf("cupool: sharing %s: %w", d.Name(), cupool.ErrClosed)
	}
	if k := s.deviceOf(d); k >= 0 {
		return nil, &cupool.ConfigError{Field: "Driver", Value: d.Name(), Reason: fmt.Sprintf("has pool %d of the set already", k)}
	}
	for i, c := range s.all()[:s.n] {
		if err := enable(c.Driver(), d); err != nil {
			return nil, fmt.Errorf("cupool: sharing %s with device %d: %w", d.Name(), i, err)
		}
	}
	cfg.Driver = d
	c, err := cupool.New(cfg)
	if err != nil {
		return nil, err
	}
	all := append(append([]*cupool.Pool(nil), s.all()...), c)
	s.members.Store(&all)
	return c, nil
}
