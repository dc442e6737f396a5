package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"

	"github.com/cupool/cupool/internal/gunzip"
)

// bufferSize bounds a line of text.
const bufferSize = 1 << 16

// ReadFile reads a trace or a snapshot, gzip or not. It fails with the error of
// opening the file, or with a *ParseError that says where the file is damaged.
// Several goroutines may read at the same time.
//
// A file may be a stranger's, so what reading takes is bounded: all that it
// allocates is at most 1 MiB and 256 bytes for each byte of the contents. What
// gzip compressed may grow to 16 MiB and 128 bytes for each byte of the file;
// more is an error that wraps gunzip.ErrTooLarge, and a file that is trusted can
// be decompressed before. A line of text may have 64 KiB and an allocation
// 1 PiB; a trace may have 65,536 streams and 4 billion allocations.
func ReadFile(name string) (*Trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, name)
}

// Read is ReadFile from a reader; the name is for errors and Trace.Name.
func Read(r io.Reader, name string) (*Trace, error) {
	br, err := gunzip.NewReader(r)
	if err != nil {
		return nil, readError(err, name, 0)
	}
	// Pickles begin with the opcode of their protocol, or, in the oldest
	// two, with that of a dictionary; text never does.
	switch first, err := br.Peek(1); {
	case errors.Is(err, io.EOF):
		return nil, &ParseError{File: name, Event: -1, Reason: "the file is empty"}
	case err != nil:
		return nil, readError(err, name, 0)
	case bytes.Contains([]byte("\x80}("), first):
		return readSnapshot(br, name)
	}
	return readText(br, name)
}

// readError says what went wrong while reading a line, or the file where the
// line is 0.
func readError(err error, name string, line int) *ParseError {
	e := &ParseError{File: name, Line: line, Event: -1, Reason: err.Error(), Err: err}
	var path *fs.PathError
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		e.Reason = fmt.Sprintf("the line is longer than %d bytes", bufferSize)
	case errors.Is(err, io.ErrUnexpectedEOF):
		e.Reason = "truncated gzip"
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		e.Reason = "damaged gzip: " + err.Error()
	case errors.As(err, &path): // its name stands in front
		e.Reason = path.Err.Error()
	}
	return e
}

func readText(r *bufio.Reader, name string) (*Trace, error) {
	b := newBuilder(name)
	for line := 1; ; line++ {
		text, err := r.ReadSlice('\n')
		if err != nil && err != io.EOF {
			return nil, readError(err, name, line)
		}
		if reason := b.line(text); reason != "" {
			return nil, &ParseError{File: name, Line: line, Event: -1, Reason: reason}
		}
		if err == io.EOF {
			return b.finish(), nil
		}
	}
}

// line adds the event that a line of text holds.
func (b *builder) line(text []byte) string {
	p := fields{rest: text}
	op := p.next()
	if len(op) == 0 || op[0] == '#' {
		return ""
	}
	if len(op) > 1 {
		return fmt.Sprintf("unknown event %.32q", op)
	}
	var reason string
	switch op[0] {
	case 'a':
		id, size, stream := p.id(), p.number("BYTES"), p.number("STREAM")
		if reason = p.end(); reason == "" {
			reason = b.alloc(id, size, stream)
		}
	case 'f':
		id := p.id()
		if reason = p.end(); reason == "" {
			reason = b.free(id)
		}
	case 'r', 'e', 'w':
		id, stream := p.id(), p.number("STREAM")
		if reason = p.end(); reason != "" {
			return reason
		}
		switch op[0] {
		case 'r':
			return b.use(id, stream)
		case 'e':
			return b.record(id, stream)
		}
		return b.wait(id, stream)
	default:
		reason = fmt.Sprintf("unknown letter %q", op)
	}
	return reason
}

// fields takes a line apart and keeps the first thing that is wrong with it.
type fields struct {
	rest   []byte
	reason string
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// next returns the next field, empty at the end of the line.
func (p *fields) next() []byte {
	i := 0
	for i < len(p.rest) && isBlank(p.rest[i]) {
		i++
	}
	j := i
	for j < len(p.rest) && !isBlank(p.rest[j]) {
		j++
	}
	field := p.rest[i:j]
	p.rest = p.rest[j:]
	return field
}

// number reads a whole number.
func (p *fields) number(name string) int64 {
	if p.reason != "" {
		return 0
	}
	field := p.next()
	if len(field) == 0 {
		p.reason = "missing field " + name
		return 0
	}
	digits, negative := field, field[0] == '-'
	if negative {
		digits = field[1:]
	}
	var n int64
	for _, c := range digits {
		d := int64(c - '0')
		if c < '0' || c > '9' {
			p.reason = fmt.Sprintf("%s is not a number: %.32q", name, field)
			return 0
		}
		if n > (math.MaxInt64-d)/10 {
			p.reason = fmt.Sprintf("%s is too large: %.32s", name, field)
			return 0
		}
		n = 10*n + d
	}
	if len(digits) == 0 {
		p.reason = fmt.Sprintf("%s is not a number: %.32q", name, field)
	}
	if negative {
		return -n
	}
	return n
}

// id reads an ID, which is not negative.
func (p *fields) id() uint64 {
	n := p.number("ID")
	if n < 0 && p.reason == "" {
		p.reason = fmt.Sprintf("negative ID %d", n)
	}
	return uint64(n)
}

// end returns what is wrong with the line, if only that it goes on.
func (p *fields) end() string {
	if rest := p.next(); p.reason == "" && len(rest) > 0 {
		p.reason = fmt.Sprintf("unexpected field %.32q", rest)
	}
	return p.reason
}
