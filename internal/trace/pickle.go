package trace

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Python's pickles, as far as a memory snapshot needs them: dictionaries, lists,
// strings and whole numbers, in protocols 0 to 5 as Python's
// Lib/pickletools.py describes them. Instructions that make objects (GLOBAL,
// REDUCE, BUILD, persistent IDs) are refused.
//
// A pickle is a program for a machine with a stack, and a stranger may have
// written it. So no value is copied and no nested value is walked, and only what
// a snapshot is read for is kept: of dictionaries the values of known keys, of
// strings which of the known ones they are, of numbers those of an int64.

// A word is a string that means something in a snapshot. otherWord is any other
// string.
type word uint8

const (
	keyTraces word = iota
	keyAction
	keyAddr
	keySize
	keyStream
	wordAlloc
	wordFreeRequested
	wordFreeCompleted
	wordOOM
	otherWord

	numKeys = wordAlloc
)

var wordNames = [...]string{
	"device_traces", "action", "addr", "size", "stream",
	"alloc", "free_requested", "free_completed", "oom",
}

var words = func() map[string]word {
	m := map[string]word{}
	for w, name := range wordNames {
		m[name] = word(w)
	}
	return m
}()

func wordOf(text []byte) word {
	if w, ok := words[string(text)]; ok {
		return w
	}
	return otherWord
}

// longestWord is more bytes than any word has.
const longestWord = 32

// The values of a pickle are word, int64, *list, *dict and other.
type (
	list struct{ items []any }
	dict struct{ values *[numKeys]any } // nil: none of a known key
	// other is a value that a snapshot is not read for: None, a truth value, a
	// fraction, bytes, a tuple, a set, a number that no int64 holds.
	other struct{}
)

func (d *dict) get(key word) any {
	if d.values == nil {
		return nil
	}
	return d.values[key]
}

func (d *dict) set(key, value any) {
	w, ok := key.(word)
	if !ok || w >= numKeys {
		return
	}
	if d.values == nil {
		d.values = new([numKeys]any)
	}
	d.values[w] = value
}

// maxStack bounds the values that are in no container yet. Python puts a
// thousand of them into one at a time.
const maxStack = 1 << 20

// unpickler is the machine. It keeps the first error.
type unpickler struct {
	r     *bufio.Reader
	in    *counted // behind r
	stack []any
	marks []int // lengths of the stack
	memo  map[uint64]any
	err   error
}

// unpickle returns the value of a pickle. The error says at which byte of the
// pickle it is damaged.
func unpickle(r io.Reader) (any, error) {
	in := &counted{Reader: r}
	u := &unpickler{r: bufio.NewReaderSize(in, bufferSize), in: in, memo: map[uint64]any{}}
	for {
		at := u.position()
		op := byte(u.number(1))
		if u.err == nil && op == '.' {
			if v := u.pop(); u.err == nil {
				return v, nil
			}
		}
		if u.err == nil {
			u.do(op)
		}
		switch {
		case u.err == nil:
		case errors.Is(u.err, io.ErrUnexpectedEOF):
			return nil, fmt.Errorf("damaged pickle at byte %d: it is truncated there: %w", u.position(), u.err)
		default:
			return nil, fmt.Errorf("damaged pickle at byte %d: %w", at, u.err)
		}
	}
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

	case 'N', '\x88', '\x89': // NONE, NEWTRUE, NEWFALSE
		u.push(other{})
	case 'G': // BINFLOAT
		u.number(8)
		u.push(other{})
	case 'F': // FLOAT
		u.line()
		u.push(other{})
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
			u.push(wordOf(text[1 : n-1]))
		}
	case 'V': // UNICODE
		u.push(wordOf(u.line()))
	case 'U', '\x8c': // SHORT_BINSTRING, SHORT_BINUNICODE
		u.push(u.text(u.number(1)))
	case 'T', 'X': // BINSTRING, BINUNICODE
		u.push(u.text(u.number(4)))
	case '\x8d': // BINUNICODE8
		u.push(u.text(u.number(8)))
	case 'C': // SHORT_BINBYTES
		u.text(u.number(1))
		u.push(other{})
	case 'B': // BINBYTES
		u.text(u.number(4))
		u.push(other{})
	case '\x8e', '\x96': // BINBYTES8, BYTEARRAY8
		u.text(u.number(8))
		u.push(other{})

	case ')', '\x8f': // EMPTY_TUPLE, EMPTY_SET
		u.push(other{})
	case 't', '\x91': // TUPLE, FROZENSET
		u.popMark()
		u.push(other{})
	case '\x85', '\x86', '\x87': // TUPLE1 to TUPLE3
		for range op - '\x84' {
			u.pop()
		}
		u.push(other{})
	case '\x90': // ADDITEMS
		u.popMark()
		u.top()
	case ']': // EMPTY_LIST
		u.push(&list{})
	case 'l': // LIST
		u.push(&list{slices.Clone(u.popMark())})
	case 'a': // APPEND
		u.extend([]any{u.pop()})
	case 'e': // APPENDS
		u.extend(u.popMark())
	case '}': // EMPTY_DICT
		u.push(&dict{})
	case 'd': // DICT
		d := &dict{}
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
	l, ok := u.top().(*list)
	if !ok {
		u.fail("it appends to what is no list")
		return
	}
	l.items = append(l.items, items...)
}

func (u *unpickler) setItems(to any, items []any) {
	d, ok := to.(*dict)
	switch {
	case !ok:
		u.fail("it sets a key of what is no dictionary")
	case len(items)%2 != 0:
		u.fail("it sets a key without a value")
	default:
		for i := 0; i < len(items); i += 2 {
			d.set(items[i], items[i+1])
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

// text reads a string of n bytes.
func (u *unpickler) text(n uint64) word {
	if n > math.MaxInt {
		u.fail("it has a string of %d bytes", n)
	}
	if u.err != nil {
		return otherWord
	}
	w := otherWord
	if n <= longestWord {
		head, _ := u.r.Peek(int(n)) // Discard has its error
		w = wordOf(head)
	}
	if _, err := u.r.Discard(int(n)); err != nil {
		u.ended(err)
	}
	return w
}

// long reads a number of n bytes with a sign, the lowest first.
func (u *unpickler) long(n uint64) any {
	if n > 8 {
		u.text(n)
		return other{}
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
		return other{}
	case err != nil:
		u.fail("%q is no whole number", clip([]byte(text)))
	}
	return n
}

// index reads a line with the number of a kept value.
func (u *unpickler) index() uint64 {
	text := u.line()
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		u.fail("%q is no number of a kept value", clip(text))
	}
	return n
}
