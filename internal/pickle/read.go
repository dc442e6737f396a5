// Package pickle reads and writes Python's pickles, as far as memory snapshots of
// PyTorch need them: dictionaries, lists, tuples, strings, numbers and truth
// values. It reads protocols 0 to 5 as Python's Lib/pickletools.py describes
// them, and refuses the instructions that make objects (GLOBAL, REDUCE, BUILD,
// persistent IDs). It writes what PyTorch's viewer takes, which has no Python.
package pickle

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
)

// bufferSize bounds a line of text, and the strings that are kept.
const bufferSize = 1 << 16

// A pickle is a program for a machine with a stack, and a stranger may have
// written it. So no value is copied, no nested value is walked, and of
// dictionaries only the values of known keys are kept.

// The values of a pickle are string, int64, float64, bool, *List, *Dict, Tuple and Other.
type (
	// List is a list. It may hold itself.
	List struct{ Items []any }
	// Tuple is a tuple.
	Tuple []any
	// Dict is a dictionary.
	Dict struct{ pairs []pair }
	// Other is a value that no snapshot is read for: None, bytes, a
	// set, a string of more than 64 KiB, a number that no int64 holds or
	// that is a fraction in text.
	Other struct{}
)

type pair struct {
	key   string
	value any
}

// Get returns the value of a known key, nil where there is none.
func (d *Dict) Get(key string) any {
	for _, p := range d.pairs {
		if p.key == key {
			return p.value
		}
	}
	return nil
}

// set sets a known key. There are few.
func (d *Dict) set(key string, value any) {
	for i := range d.pairs {
		if d.pairs[i].key == key {
			d.pairs[i].value = value
			return
		}
	}
	d.pairs = append(d.pairs, pair{key, value})
}

// Error says at which byte a pickle is damaged.
type Error struct {
	Offset int64
	Err    error
}

// Error says where and what.
func (e *Error) Error() string { return fmt.Sprintf("damaged pickle at byte %d: %v", e.Offset, e.Err) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// maxStack bounds the values that are in no container yet. Python puts a
// thousand of them into one at a time.
const maxStack = 1 << 20

// unpickler is the machine. It keeps the first error.
type unpickler struct {
	keys  map[string]any // known strings, each as a value
	r     *bufio.Reader
	in    *counted // behind r
	stack []any
	marks []int // lengths of the stack
	memo  map[uint64]any
	err   error
}

// Read returns the value of a pickle, with the given keys of its dictionaries, and how
// many bytes the pickle has. It fails with an *Error. What it allocates is at most
// 1 MiB and 256 bytes for each byte of the pickle. A value may stand in many places,
// each for two bytes of the pickle: who walks it as a tree bounds how far.
func Read(r io.Reader, keys ...string) (v any, size int64, err error) {
	in := &counted{Reader: r}
	u := &unpickler{keys: map[string]any{}, r: bufio.NewReaderSize(in, bufferSize), in: in, memo: map[uint64]any{}}
	for _, k := range keys {
		u.keys[k] = k
	}
	for {
		at := u.position()
		op := byte(u.number(1))
		if u.err == nil && op == '.' {
			if v := u.pop(); u.err == nil {
				return v, u.position(), nil
			}
		}
		if u.err == nil {
			u.do(op)
		}
		switch {
		case u.err == nil:
		case errors.Is(u.err, io.ErrUnexpectedEOF):
			return nil, 0, &Error{u.position(), fmt.Errorf("it is truncated there: %w", u.err)}
		default:
			return nil, 0, &Error{at, u.err}
		}
	}
}

// counted counts the bytes that are read.
type counted struct {
	io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

func (u *unpickler) position() int64 { return u.in.n - int64(u.r.Buffered()) }

// do carries out an instruction.
func (u *unpickler) do(op byte) {
	switch op {
	case '\x80': // PROTO
		if v := u.number(1); v > 5 {
			u.fail("its protocol is %d; those from 0 to 5 are known", v)
		}
	case '\x95': // FRAME
		u.number(8)
	case '(': // MARK
		u.marks = append(u.marks, len(u.stack))
		if len(u.marks) > maxStack {
			u.fail("it has more than %d marks", maxStack)
		}
	case '0': // POP, of a mark too
		if n := len(u.marks); n > 0 && u.marks[n-1] == len(u.stack) {
			u.marks = u.marks[:n-1]
		} else {
			u.pop()
		}
	case '1': // POP_MARK
		u.popMark()
	case '2': // DUP
		u.push(u.top())

	case 'N': // NONE
		u.push(Other{})
	case '\x88', '\x89': // NEWTRUE, NEWFALSE
		u.push(op == '\x88')
	case 'G': // BINFLOAT
		u.push(math.Float64frombits(bits.ReverseBytes64(u.number(8))))
	case 'F': // FLOAT
		u.line()
		u.push(Other{})
	case 'I', 'L': // INT, LONG
		u.push(u.decimal())
	case 'K': // BININT1
		u.push(int64(u.number(1)))
	case 'M': // BININT2
		u.push(int64(u.number(2)))
	case 'J': // BININT
		u.push(int64(int32(u.number(4))))
	case '\x8a': // LONG1
		u.push(u.long(u.number(1)))
	case '\x8b': // LONG4
		u.push(u.long(u.number(4)))

	case 'S': // STRING
		text := u.line()
		if n := len(text); u.err == nil && (n < 2 || text[0] != text[n-1] || text[0] != '\'' && text[0] != '"') {
			u.fail("the string has no quotes")
		} else if u.err == nil {
			u.push(u.known(text[1 : n-1]))
		}
	case 'V': // UNICODE
		u.push(u.known(u.line()))
	case 'U', '\x8c': // SHORT_BINSTRING, SHORT_BINUNICODE
		u.push(u.text(u.number(1)))
	case 'T', 'X': // BINSTRING, BINUNICODE
		u.push(u.text(u.number(4)))
	case '\x8d': // BINUNICODE8
		u.push(u.text(u.number(8)))
	case 'C': // SHORT_BINBYTES
		u.skip(u.number(1))
		u.push(Other{})
	case 'B': // BINBYTES
		u.skip(u.number(4))
		u.push(Other{})
	case '\x8e', '\x96': // BINBYTES8, BYTEARRAY8
		u.skip(u.number(8))
		u.push(Other{})

	case ')': // EMPTY_TUPLE
		u.push(Tuple(nil))
	case 't': // TUPLE
		u.push(Tuple(slices.Clone(u.popMark())))
	case '\x85', '\x86', '\x87': // TUPLE1 to TUPLE3
		t := make(Tuple, op-'\x84')
		for i := range t {
			t[len(t)-1-i] = u.pop()
		}
		u.push(t)
	case '\x8f': // EMPTY_SET
		u.push(Other{})
	case '\x91': // FROZENSET
		u.popMark()
		u.push(Other{})
	case '\x90': // ADDITEMS
		u.popMark()
		u.top()
	case ']': // EMPTY_LIST
		u.push(&List{})
	case 'l': // LIST
		u.push(&List{slices.Clone(u.popMark())})
	case 'a': // APPEND
		u.extend([]any{u.pop()})
	case 'e': // APPENDS
		u.extend(u.popMark())
	case '}': // EMPTY_DICT
		u.push(&Dict{})
	case 'd': // DICT
		d := &Dict{}
		u.setItems(d, u.popMark())
		u.push(d)
	case 's': // SETITEM
		value, key := u.pop(), u.pop()
		u.setItems(u.top(), []any{key, value})
	case 'u': // SETITEMS
		items := u.popMark()
		u.setItems(u.top(), items)

	case '\x94': // MEMOIZE
		u.memoize(uint64(len(u.memo)))
	case 'q': // BINPUT
		u.memoize(u.number(1))
	case 'r': // LONG_BINPUT
		u.memoize(u.number(4))
	case 'p': // PUT
		u.memoize(u.index())
	case 'h': // BINGET
		u.recall(u.number(1))
	case 'j': // LONG_BINGET
		u.recall(u.number(4))
	case 'g': // GET
		u.recall(u.index())
	default:
		u.fail("instruction %q is none of a memory snapshot's, which holds plain values", []byte{op})
	}
}

func (u *unpickler) fail(format string, args ...any) {
	if u.err == nil {
		u.err = fmt.Errorf(format, args...)
	}
}

func (u *unpickler) push(v any) {
	if u.stack = append(u.stack, v); len(u.stack) > maxStack {
		u.fail("it has more than %d values that are in no list or dictionary", maxStack)
	}
}

// floor is the length of the stack at the last mark, below which nothing is
// taken.
func (u *unpickler) floor() int {
	if n := len(u.marks); n > 0 {
		return u.marks[n-1]
	}
	return 0
}

// top returns the value on top.
func (u *unpickler) top() any {
	if len(u.stack) <= u.floor() {
		u.fail("it takes a value where there is none")
		return nil
	}
	return u.stack[len(u.stack)-1]
}

func (u *unpickler) pop() any {
	v := u.top()
	if u.err == nil {
		u.stack = u.stack[:len(u.stack)-1]
	}
	return v
}

// popMark takes the values behind the last mark. They are valid until the next
// push.
func (u *unpickler) popMark() []any {
	if len(u.marks) == 0 {
		u.fail("it refers to a mark where there is none")
		return nil
	}
	items := u.stack[u.floor():]
	u.stack = u.stack[:u.floor()]
	u.marks = u.marks[:len(u.marks)-1]
	return items
}

func (u *unpickler) extend(items []any) {
	l, ok := u.top().(*List)
	if !ok {
		u.fail("it appends to what is no list")
		return
	}
	l.Items = append(l.Items, items...)
}

func (u *unpickler) setItems(to any, items []any) {
	d, ok := to.(*Dict)
	switch {
	case !ok:
		u.fail("it sets a key of what is no dictionary")
	case len(items)%2 != 0:
		u.fail("it sets a key without a value")
	default:
		for i := 0; i < len(items); i += 2 {
			key, _ := items[i].(string)
			if k, ok := u.keys[key]; ok {
				d.set(k.(string), items[i+1])
			}
		}
	}
}

func (u *unpickler) memoize(i uint64) {
	if v := u.top(); u.err == nil {
		u.memo[i] = v
	}
}

func (u *unpickler) recall(i uint64) {
	v, ok := u.memo[i]
	if !ok {
		u.fail("it recalls value %d, which it did not keep", i)
	}
	u.push(v)
}

// number reads a number of some bytes, the lowest first.
func (u *unpickler) number(bytes int) uint64 {
	var b [8]byte
	for i := range bytes {
		c, err := u.r.ReadByte()
		if err != nil {
			u.ended(err)
			return 0
		}
		b[i] = c
	}
	return binary.LittleEndian.Uint64(b[:])
}

// ended keeps the error of a read.
func (u *unpickler) ended(err error) {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if u.err == nil {
		u.err = err
	}
}

// known returns a string. Those of keys are there already.
func (u *unpickler) known(text []byte) any {
	if v, ok := u.keys[string(text)]; ok {
		return v
	}
	return string(text)
}

// text reads a string of n bytes.
func (u *unpickler) text(n uint64) any {
	if n > bufferSize {
		u.skip(n)
		return Other{}
	}
	text, err := u.r.Peek(int(n))
	if err != nil {
		u.skip(n) // for the position of the end
		return Other{}
	}
	v := u.known(text)
	u.skip(n)
	return v
}

// skip reads n bytes.
func (u *unpickler) skip(n uint64) {
	if n > math.MaxInt {
		u.fail("it has a string of %d bytes", n)
	}
	if u.err != nil {
		return
	}
	if _, err := u.r.Discard(int(n)); err != nil {
		u.ended(err)
	}
}

// long reads a number of n bytes with a sign, the lowest first.
func (u *unpickler) long(n uint64) any {
	if n > 8 {
		u.skip(n)
		return Other{}
	}
	unused := 64 - 8*n
	return int64(u.number(int(n))<<unused) >> unused
}

// line reads a line. It is valid until the next read.
func (u *unpickler) line() []byte {
	text, err := u.r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		u.fail("it has a line of more than %d bytes", bufferSize)
	case err != nil:
		u.ended(err)
	default:
		return text[:len(text)-1]
	}
	return nil
}

// decimal reads a line with a number.
func (u *unpickler) decimal() any {
	text := strings.TrimSuffix(string(u.line()), "L")
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return Other{}
	case err != nil:
		u.fail("%.32q is no whole number", text)
	}
	return n
}

// index reads a line with the number of a kept value.
func (u *unpickler) index() uint64 {
	text := u.line()
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		u.fail("%.32q is no number of a kept value", text)
	}
	return n
}
