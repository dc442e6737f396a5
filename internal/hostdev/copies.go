package hostdev

import (
	"fmt"

	"github.com/cupool/cupool/device"
)

const (
	// inlineBytes is the size up to which Copy and Memset on an idle stream
	// run at once on the caller's goroutine: about the cost of handing them
	// to a worker.
	inlineBytes = 32 << 10
	// stageBytes is the size up to which CopyIn on a busy stream copies its
	// source and returns, instead of waiting for the stream.
	stageBytes = 64 << 10
)

// Copy copies n bytes from src to dst in the order of the stream; the ranges
// may overlap, and either may be another host device's. It may return before
// the copy is done. It returns ErrInvalidRange when a range is not inside one
// allocation or mapping, and ErrInvalidHandle for an unknown stream.
func (d *Device) Copy(dst, src device.Ptr, n int64, h device.Stream) error {
	s, err := d.check("Copy", h, n, anyDevice, dst, src)
	if err != nil || n == 0 {
		return err
	}
	return s.put("Copy", &job{kind: jobCopy, dst: dst, src: src, n: uint64(n)})
}

// Memset sets n bytes at dst to value in the order of the stream. It may
// return before that is done. Errors are those of Copy.
func (d *Device) Memset(dst device.Ptr, value byte, n int64, h device.Stream) error {
	s, err := d.check("Memset", h, n, ownOrPeers, dst)
	if err != nil || n == 0 {
		return err
	}
	return s.put("Memset", &job{kind: jobMemset, dst: dst, value: value, n: uint64(n)})
}

// CopyIn copies src to dst in the order of the stream. src may be reused when
// it returns. Errors are those of Copy.
func (d *Device) CopyIn(dst device.Ptr, src []byte, h device.Stream) error {
	s, err := d.check("CopyIn", h, int64(len(src)), ownOrPeers, dst)
	if err != nil || len(src) == 0 {
		return err
	}
	j := job{kind: jobCopyIn, dst: dst, n: uint64(len(src)), host: src}
	if ran, err := s.tryInline("CopyIn", &j); ran || err != nil {
		return d.after("CopyIn", err)
	}
	if len(src) <= stageBytes {
		j.host = append([]byte(nil), src...)
		_, err := s.submit("CopyIn", j)
		return err
	}
	return s.submitAndWait("CopyIn", j)
}

// CopyOut copies from src to dst in the order of the stream and returns when
// dst holds the data. Errors are those of Copy.
func (d *Device) CopyOut(dst []byte, src device.Ptr, h device.Stream) error {
	s, err := d.check("CopyOut", h, int64(len(dst)), ownOrPeers, src)
	if err != nil || len(dst) == 0 {
		return err
	}
	j := job{kind: jobCopyOut, src: src, n: uint64(len(dst)), host: dst}
	if ran, err := s.tryInline("CopyOut", &j); ran || err != nil {
		return d.after("CopyOut", err)
	}
	return s.submitAndWait("CopyOut", j)
}

// put runs j at once when it is small and the stream is idle, and queues it
// otherwise.
func (s *stream) put(op string, j *job) error {
	if j.n <= inlineBytes {
		if ran, err := s.tryInline(op, j); ran || err != nil {
			return s.dev.after(op, err)
		}
	}
	_, err := s.submit(op, *j)
	return err
}

func (s *stream) submitAndWait(op string, j job) error {
	n, err := s.submit(op, j)
	if err != nil {
		return err
	}
	s.wait(n)
	return s.dev.after(op, nil)
}

// after returns err, or else what the job that just ran did to the device.
func (d *Device) after(op string, err error) error {
	if err != nil {
		return err
	}
	if e := d.lost.Load(); e != nil {
		return fmt.Errorf("hostdev: %s: %w", op, *e)
	}
	return nil
}

// check returns the stream, when all ranges of n bytes are this device's memory
// or that of a device that may be touched.
func (d *Device) check(op string, h device.Stream, n int64, may touchable, at ...device.Ptr) (*stream, error) {
	s, err := d.stream(op, h)
	if err != nil || d.holds(n, at...) == nil {
		return s, err
	}
	for _, p := range at {
		if err := d.reachable(p, n, may); err != nil {
			return nil, d.failure(op, err)
		}
	}
	return s, nil
}
