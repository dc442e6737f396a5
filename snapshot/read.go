package snapshot

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/gunzip"
)

// FormatError says that what was read is no snapshot, and where.
type FormatError struct {
	Offset int64  // the byte at which it is damaged, after gzip
	Field  string // what is wrong, as "segments[3].blocks[1]"; "" where the byte says it
	Err    error
}

// Error says where and what.
func (e *FormatError) Error() string {
	if e.Field != "" {
		return fmt.Sprintf("not a memory snapshot: %s: %v", e.Field, e.Err)
	}
	return fmt.Sprintf("not a memory snapshot: at byte %d: %v", e.Offset, e.Err)
}

// errNoWriter is what is written to nobody.
var errNoWriter = fmt.Errorf("writing a snapshot: the writer is nil: %w", device.ErrInvalidHandle)

// Unwrap returns Err.
func (e *FormatError) Unwrap() error { return e.Err }

// Read reads what was written of snapshots: a Snapshot as JSON, or a list of them;
// what WriteTorch wrote; or what PyTorch's torch.cuda.memory._dump_snapshot did.
// gzip may have compressed it. It returns one Snapshot for each pool, by device, and the
// allocator's before those of its private pools, which are in no Pools.
//
// It fails with a *FormatError. What it reads may be a stranger's: it allocates at
// most 2 MiB, and 1 KiB for each byte. There are no more segments, blocks, events and
// totals than bytes, and all strings, those of different stacks once, have at most 1 MiB
// and 256 bytes for each byte. Blocks and events share their stacks, so what is
// read is far larger as JSON. A stack has its 1,024 innermost functions. What gzip compressed may grow to 16 MiB and
// 128 bytes for each byte; the error of more says to decompress it first.
func Read(r io.Reader) ([]Snapshot, error) {
	if r == nil {
		return nil, &FormatError{Err: fmt.Errorf("the reader is nil: %w", device.ErrInvalidHandle)}
	}
	br, err := gunzip.NewReader(r)
	if err != nil {
		return nil, &FormatError{Err: err}
	}
	first, err := br.Peek(1)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("there is nothing")
		}
		return nil, &FormatError{Err: err}
	}
	var list []Snapshot
	switch {
	case bytes.Contains([]byte("{[ \t\r\n"), first):
		list, err = readJSON(br)
	case bytes.Contains([]byte("\x80}(]"), first): // the first instructions of a dictionary or a list
		list, err = readTorch(br)
	default:
		err = &FormatError{Err: errors.New("it is neither JSON nor a pickle")}
	}
	if err != nil {
		return nil, err
	}
	held := int64(0)
	for i := range list {
		if held, err = list[i].check(held); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// readJSON keeps nothing of what no JSON begins with, however long it goes on.
func readJSON(r *bufio.Reader) (list []Snapshot, err error) {
	first, skipped := byte(' '), int64(-1)
	for ; strings.IndexByte(" \t\r\n", first) >= 0; skipped++ {
		if first, err = r.ReadByte(); err != nil {
			return nil, &FormatError{Offset: skipped + 1, Err: err}
		}
	}
	_ = r.UnreadByte() // one was read
	src := &source{Reader: r}
	in := json.NewDecoder(src)
	if first == '[' {
		err = in.Decode(&list)
	} else {
		list = make([]Snapshot, 1)
		err = in.Decode(&list[0])
	}
	if err == nil {
		switch _, more := in.Token(); {
		case src.err != nil:
			return nil, &FormatError{Offset: skipped + src.n, Err: src.err}
		case more != io.EOF:
			return nil, &FormatError{Offset: skipped + in.InputOffset(), Err: errors.New("something follows")}
		}
	}
	switch {
	case err == nil && len(list) == 0:
		return nil, &FormatError{Err: errors.New("the list of snapshots is empty")}
	case err == nil:
		return flat(list), nil
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return nil, &FormatError{Offset: skipped + syntax.Offset, Err: err}
	case errors.As(err, &kind):
		return nil, &FormatError{Offset: skipped + kind.Offset, Err: err}
	case src.err != nil || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &FormatError{Offset: skipped + src.n, Err: err}
	}
	return nil, &FormatError{Field: "JSON", Err: err} // such as a time that is none
}

// source knows what it has read, and the error that ended it.
type source struct {
	io.Reader
	n   int64
	err error // but io.EOF
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.n += int64(n)
	if err != io.EOF {
		s.err = err
	}
	return n, err
}

// known are the states that there are.
var known = map[State]bool{Live: true, Pending: true, Cached: true, Free: true, Part: true, Gap: true}

// mayWeigh reports whether something can stand for so many of its kind. The bound is
// there so that sums of bytes stay finite.
func mayWeigh(weight float64) bool { return weight >= 0 && weight <= 1<<63 }

// cut leaves the innermost functions.
func (s *Stack) cut() { *s = (*s)[:min(len(*s), mostFrames)] }

// check says what cannot be in a snapshot, beside others that hold so many bytes, and
// returns how many all of them hold. It cuts long stacks.
func (s *Snapshot) check(held int64) (int64, error) {
	switch {
	case s.Segments == nil:
		return 0, damaged("segments", "there are none")
	case len(s.Pools) > 0:
		return 0, damaged("pools", "those of a private pool are none")
	}
	for i := range s.Segments {
		seg := &s.Segments[i]
		if err := seg.check(i); err != nil {
			return 0, err
		}
		if held += seg.Size; held < 0 {
			return 0, damaged(fmt.Sprintf("segments[%d]", i), "it and those before hold more bytes than can be counted")
		}
	}
	for i := range s.Totals {
		t := &s.Totals[i]
		t.Stack.cut()
		if !mayWeigh(t.Allocations) || !mayWeigh(t.Bytes) {
			return 0, damaged(fmt.Sprintf("totals[%d]", i), "there are no %g allocations of %g bytes", t.Allocations, t.Bytes)
		}
	}
	for i := range s.Events {
		e := &s.Events[i]
		e.Stack.cut()
		if !mayWeigh(e.Weight) {
			return 0, damaged(fmt.Sprintf("events[%d]", i), "its weight is %g", e.Weight)
		}
		if y := e.Time.Year(); y < 0 || y > 9999 { // JSON has no others
			return 0, damaged(fmt.Sprintf("events[%d]", i), "it is of the year %d", y)
		}
		if e.Size < 0 || e.Address+Ptr(e.Size) < e.Address {
			return 0, damaged(fmt.Sprintf("events[%d]", i), "there are no %d bytes at address %d", e.Size, uint64(e.Address))
		}
	}
	return held, nil
}

// check says what cannot be in a segment. It cuts long stacks.
func (s *Segment) check(i int) error {
	at, left := s.Address, s.Size
	for k := range s.Blocks {
		b := &s.Blocks[k]
		b.Stack.cut()
		switch {
		case !known[b.State]:
			return damaged(fmt.Sprintf("segments[%d].blocks[%d]", i, k), "its state is %.32q", b.State)
		case b.Size <= 0 || b.Requested < 0 || b.Address != at:
			return damaged(fmt.Sprintf("segments[%d].blocks[%d]", i, k), "%d bytes at address %d do not follow the block before", b.Size, uint64(b.Address))
		case b.Requested > b.Size:
			return damaged(fmt.Sprintf("segments[%d].blocks[%d]", i, k), "%d bytes requested are more than its %d", b.Requested, b.Size)
		case !mayWeigh(b.Weight):
			return damaged(fmt.Sprintf("segments[%d].blocks[%d]", i, k), "its weight is %g", b.Weight)
		case b.Size > left:
			return damaged(fmt.Sprintf("segments[%d]", i), "its blocks are not of its size")
		}
		at += Ptr(b.Size)
		left -= b.Size
	}
	if left != 0 || at < s.Address {
		return damaged(fmt.Sprintf("segments[%d]", i), "its blocks are not of its size")
	}
	return nil
}

func damaged(field, format string, args ...any) error {
	return &FormatError{Field: field, Err: fmt.Errorf(format, args...)}
}
