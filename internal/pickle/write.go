package pickle

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"strings"
)

// Writer writes a pickle of protocol 2, by instructions that PyTorch's viewer
// knows. Each method but Close writes one value. It is used by one goroutine.
//
// No library of Go's writes what that viewer reads: og-rek writes whole numbers of
// more than 31 bits as text, which it refuses.
type Writer struct {
	w    *bufio.Writer
	kept map[any]uint32
}

// batch is how many items one instruction adds, as Python has it. The viewer
// passes them as arguments of one call, which JavaScript limits.
const batch = 1000

// NewWriter begins a pickle.
func NewWriter(w io.Writer) *Writer {
	p := &Writer{w: bufio.NewWriter(w), kept: map[any]uint32{}}
	p.op('\x80', 2) // PROTO
	return p
}

// Close ends the pickle. It fails with the first error of writing.
func (p *Writer) Close() error {
	p.op('.') // STOP
	return p.w.Flush()
}

// op writes an instruction. Flush has the error.
func (p *Writer) op(b ...byte) { _, _ = p.w.Write(b) }

func (p *Writer) op4(op byte, n uint32) {
	_, _ = p.w.Write(binary.LittleEndian.AppendUint32([]byte{op}, n))
}

// Bool writes a truth value.
func (p *Writer) Bool(b bool) {
	if b {
		p.op('\x88') // NEWTRUE
	} else {
		p.op('\x89') // NEWFALSE
	}
}

// Int writes a whole number.
func (p *Writer) Int(n int64) {
	switch {
	case n >= 0 && n <= math.MaxUint8:
		p.op('K', byte(n)) // BININT1
	case n >= 0 && n <= math.MaxUint16:
		p.op('M', byte(n), byte(n>>8)) // BININT2
	case n >= math.MinInt32 && n <= math.MaxInt32:
		p.op4('J', uint32(n)) // BININT
	default:
		b := binary.LittleEndian.AppendUint64(nil, uint64(n))
		for len(b) > 1 && int64(int8(b[len(b)-2]))>>7 == int64(int8(b[len(b)-1])) {
			b = b[:len(b)-1] // its bits are those of the sign
		}
		p.op('\x8a', byte(len(b))) // LONG1
		p.op(b...)
	}
}

// Float writes a fraction.
func (p *Writer) Float(f float64) {
	_, _ = p.w.Write(binary.BigEndian.AppendUint64([]byte{'G'}, math.Float64bits(f))) // BINFLOAT
}

// String writes a string, the second time by a reference. What is no UTF-8 in it
// is replaced.
func (p *Writer) String(s string) {
	p.Shared(s, func() {
		s := strings.ToValidUTF8(s, "\uFFFD")
		p.op4('X', uint32(len(s))) // BINUNICODE
		_, _ = p.w.WriteString(s)
	})
}

// Shared writes the value that write writes, the next time by a reference. The key
// says which value that is; strings are keys of their own.
func (p *Writer) Shared(key any, write func()) {
	switch at, ok := p.kept[key]; {
	case ok && at <= math.MaxUint8:
		p.op('h', byte(at)) // BINGET
		return
	case ok:
		p.op4('j', at) // LONG_BINGET
		return
	}
	write()
	at := uint32(len(p.kept)) // what it holds was kept before
	p.kept[key] = at
	if at <= math.MaxUint8 {
		p.op('q', byte(at)) // BINPUT
	} else {
		p.op4('r', at) // LONG_BINPUT
	}
}

// Tuple writes two values.
func (p *Writer) Tuple(a, b int64) {
	p.Int(a)
	p.Int(b)
	p.op('\x86') // TUPLE2
}

// List writes a list of n items; item writes one.
func (p *Writer) List(n int, item func(i int)) {
	p.op(']') // EMPTY_LIST
	for from := 0; from < n; from += batch {
		p.op('(') // MARK
		for i := from; i < min(from+batch, n); i++ {
			item(i)
		}
		p.op('e') // APPENDS
	}
}

// Dict writes a dictionary; items calls String and then a value for each of its
// items, of which there are not many.
func (p *Writer) Dict(items func()) {
	p.op('}', '(') // EMPTY_DICT, MARK
	items()
	p.op('u') // SETITEMS
}
