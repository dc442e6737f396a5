package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// bufferSize bounds a line of text.
const bufferSize = 1 << 16

// ReadFile reads a trace or a snapshot, gzip or not. A file that is damaged
// is a *ParseError.
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
	br := bufio.NewReaderSize(r, bufferSize)
	if magic, _ := br.Peek(2); string(magic) == "\x1f\x8b" {
		z, err := gzip.NewReader(br)
		if err != nil {
			return nil, &ParseError{File: name, Event: -1, Reason: readReason(err)}
		}
		br = bufio.NewReaderSize(z, bufferSize)
	}
	// Pickles begin with the opcode of their protocol, or, in the oldest
	// two, with that of a dictionary; text never does.
	switch first, err := br.Peek(1); {
	case errors.Is(err, io.EOF):
		return nil, &ParseError{File: name, Event: -1, Reason: "the file is empty"}
	case err == nil && bytes.Contains([]byte("\x80}("), first):
		return readSnapshot(br, name)
	}
	return readText(br, name)
}

// readReason says what went wrong while reading.
func readReason(err error) string {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "truncated gzip"
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return "damaged gzip: " + err.Error()
	}
	return err.Error()
}

func readText(r *bufio.Reader, name string) (*Trace, error) {
	b := newBuilder(name)
	for line := 1; ; line++ {
		text, err := r.ReadSlice('\n')
		if err != nil && err != io.EOF {
			reason := readReason(err)
			if errors.Is(err, bufio.ErrBufferFull) {
				reason = fmt.Sprintf("the line is longer than %d bytes", bufferSize)
			}
			return nil, &ParseError{File: name, Line: line, Event: -1, Reason: reason}
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
		return fmt.Sprintf("unknown event %q", clip(op))
	}
	var reason string
	switch op[0] {
	case 'a':
		id, size, stream := p.id("ID"), p.number("BYTES"), p.number("STREAM")
		if reason = p.end(); reason == "" {
			reason = b.alloc(id, size, stream)
		}
	case 'f':
		id := p.id("ID")
		if reason = p.end(); reason == "" {
			reason = b.free(id)
		}
	case 'r', 'e', 'w':
		id, stream := p.id("ID"), p.number("STREAM")
		if reason = p.end(); reason == "" {
			reason = map[byte]func(uint64, int64) string{'r': b.use, 'e': b.record, 'w': b.wait}[op[0]](id, stream)
		}
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
			p.reason = fmt.Sprintf("%s is not a number: %q", name, clip(field))
			return 0
		}
		if n > (math.MaxInt64-d)/10 {
			p.reason = fmt.Sprintf("%s is too large: %s", name, clip(field))
			return 0
		}
		n = 10*n + d
	}
	if len(digits) == 0 {
		p.reason = fmt.Sprintf("%s is not a number: %q", name, clip(field))
	}
	if negative {
		return -n
	}
	return n
}

// id reads a number that is not negative.
func (p *fields) id(name string) uint64 {
	n := p.number(name)
	if n < 0 && p.reason == "" {
		p.reason = fmt.Sprintf("negative %s %d", name, n)
	}
	return uint64(n)
}

// end returns what is wrong with the line, if only that it goes on.
func (p *fields) end() string {
	if rest := p.next(); p.reason == "" && len(rest) > 0 {
		p.reason = fmt.Sprintf("unexpected field %q", clip(rest))
	}
	return p.reason
}

// clip shortens what is quoted in an error.
func clip(b []byte) []byte {
	if len(b) > 32 {
		return append(b[:32:32], "..."...)
	}
	return b
}
