package devices_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/devices"
)

// A traveller sends data from device to device.
type traveller struct {
	set     *devices.Set
	streams [][]*cupool.Stream // by device
	rng     *rand.Rand
}

// round sends one piece of data around, and compares what arrives.
func (r *traveller) round() error {
	want := make([]byte, 1+r.rng.IntN(64<<10))
	for i := range want {
		want[i] = byte(r.rng.Uint32())
	}
	b, s, err := r.block(int64(len(want)))
	if err != nil {
		return err
	}
	if err := s.CopyIn(b.Ptr(), want); err != nil {
		return err
	}
	for range 1 + r.rng.IntN(6) {
		if b, s, err = r.hop(b, s); err != nil {
			return err
		}
	}
	got := make([]byte, len(want))
	if err := s.CopyOut(got, b.Ptr()); err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return fmt.Errorf("%d bytes did not arrive at %v", len(want), b)
	}
	return r.set.Free(b)
}

// block allocates on any device and any of its streams.
func (r *traveller) block(size int64) (cupool.Block, *cupool.Stream, error) {
	d := r.rng.IntN(r.set.Len())
	s := r.streams[d][r.rng.IntN(len(r.streams[d]))]
	b, err := r.set.Pool(d).Alloc(size, s)
	return b, s, err
}

// hop copies a block to another one, and frees it in one of three ways.
func (r *traveller) hop(from cupool.Block, s *cupool.Stream) (cupool.Block, *cupool.Stream, error) {
	to, st, err := r.block(from.Size())
	if err != nil {
		return to, st, err
	}
	if r.rng.IntN(4) == 0 { // by hand, as a kernel reads over a peer's memory
		err = errors.Join(st.WaitStream(s), st.Copy(to.Ptr(), from.Ptr(), from.Size()), r.set.FreeOn(from, st))
		return to, st, err
	}
	if err = r.set.Copy(to.Ptr(), from.Ptr(), from.Size(), st, s); err != nil {
		return to, st, err
	}
	if r.rng.IntN(2) == 0 {
		return to, st, r.set.FreePtr(from.Ptr(), from.Size())
	}
	return to, st, r.set.Free(from)
}
