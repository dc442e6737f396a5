package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cupool/cupool"
)

// A pattern is what a block of size bytes holds: a byte everywhere, and a
// number that no other pattern has at both ends.
type pattern struct {
	tag  uint64
	size int64
}

const (
	partSize   = 64           // of what is looked at
	sampleSize = 3 * partSize // of what is looked at of one block, at most
	fillWhole  = 256 << 10    // blocks up to this size are filled, larger ones at both ends and in the middle
	fillPart   = 32 << 10
)

func (p pattern) fill() byte { return byte(p.tag * 0x9E3779B97F4A7C15 >> 56) }

// A part is n bytes of a block from an offset on.
type part struct{ off, n int64 }

// around are the n bytes at both ends and in the middle of a block.
func around(size, n int64) []part {
	return []part{{0, n}, {(size - n) / 2, n}, {size - n, n}}
}

// parts are what is looked at.
func (p pattern) parts() []part {
	if p.size <= sampleSize {
		return []part{{0, p.size}}
	}
	return around(p.size, partSize)
}

// sample is what the parts hold, one after the other.
func (p pattern) sample() []byte {
	s := bytes.Repeat([]byte{p.fill()}, int(min(p.size, sampleSize)))
	if n := len(s); n >= 16 {
		binary.LittleEndian.PutUint64(s, p.tag)
		binary.LittleEndian.PutUint64(s[n-8:], ^p.tag)
	}
	return s
}

// write has the device write the pattern, in the order of s.
func (p pattern) write(at cupool.Ptr, s *cupool.Stream) error {
	sample := p.sample()
	if p.size <= sampleSize {
		return s.CopyIn(at, sample)
	}
	fills := []part{{0, p.size}}
	if p.size > fillWhole {
		fills = around(p.size, fillPart)
	}
	var errs []error
	for _, f := range fills {
		errs = append(errs, s.Memset(at+cupool.Ptr(f.off), p.fill(), f.n))
	}
	return errors.Join(append(errs,
		s.CopyIn(at, sample[:8]),
		s.CopyIn(at+cupool.Ptr(p.size-8), sample[len(sample)-8:]))...)
}

// A witness has copies of blocks' contents, made by the device in the order of
// the streams that used the blocks, and compares them later. The blocks may be
// freed meanwhile: a copy shows whether their memory was reused too early.
type witness struct {
	k      *soak
	mem    cupool.Block
	copies []pattern
	notes  []string               // what each was
	used   map[*cupool.Stream]int // the streams that made copies, with their places
	got    []byte
}

const witnessCopies = 32

func (k *soak) newWitness() (*witness, error) {
	mem, err := k.alloc(k.pool, witnessCopies*sampleSize, k.pool.DefaultStream())
	if err != nil {
		return nil, err
	}
	return &witness{k: k, mem: mem, used: make(map[*cupool.Stream]int), got: make([]byte, witnessCopies*sampleSize)}, nil
}

func (w *witness) full() bool { return len(w.copies) == witnessCopies }

// see has s, the stream at a place, copy what the pattern's block holds. The
// witness must not be full.
func (w *witness) see(p pattern, at cupool.Ptr, s *cupool.Stream, place int, note string) error {
	to := w.mem.Ptr() + cupool.Ptr(len(w.copies)*sampleSize)
	for _, x := range p.parts() {
		if err := s.Copy(to, at+cupool.Ptr(x.off), x.n); err != nil {
			return err
		}
		to += cupool.Ptr(x.n)
	}
	w.copies, w.notes = append(w.copies, p), append(w.notes, note)
	w.used[s] = place
	return nil
}

// compare waits for the copies and reports those that are wrong.
func (w *witness) compare() error {
	for s, place := range w.used {
		err := w.k.on(place, func(now *cupool.Stream) error {
			if now != s {
				return nil // it was closed, which waits
			}
			return s.Sync()
		})
		if err != nil {
			return err
		}
	}
	if err := w.k.pool.DefaultStream().CopyOut(w.got, w.mem.Ptr()); err != nil {
		return err
	}
	for i, p := range w.copies {
		want := p.sample()
		got := w.got[i*sampleSize:][:len(want)]
		w.k.found.bytes.Add(int64(len(want)))
		if !bytes.Equal(got, want) {
			w.k.corrupted(fmt.Sprintf("%s: %d bytes hold % x, want % x", w.notes[i], p.size, got, want))
		}
	}
	w.copies, w.notes = w.copies[:0], w.notes[:0]
	clear(w.used)
	return nil
}

func (w *witness) close() error {
	return errors.Join(w.compare(), w.k.free(w.mem, w.k.pool.Free))
}
