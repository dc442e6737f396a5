package ipc

import (
	"encoding/binary"
	"fmt"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
)

// The protocol: messages of a header and a body, in both directions. The header has the
// kind, whether a file descriptor comes with it, and the bytes of the body. Numbers are
// little-endian. An importer says hello; after welcome it asks to open and to close, each
// with a number that the answer repeats. The answer to open is opened and
// then a piece for each piece of memory, or an error. Closing all ends the connection
// without an answer.

// version is that of the protocol.
const version = 1

// magic begins what both sides say first: "cuIPC".
const magic = 0x4350497563

// kind is that of a message.
type kind uint8

const (
	helloKind   kind = iota + 1 // magic, version, process id
	welcomeKind                 // magic, version
	openKind                    // request, name
	openedKind                  // request, reference, bytes before the range, its bytes, number of pieces
	pieceKind                   // bytes, name of the device's or none; with a file descriptor or not
	closeKind                   // request, reference or allRefs
	closedKind                  // request
	errorKind                   // request, code, text
)

const (
	headerSize = 8
	maxBody    = 1024    // bytes
	maxName    = 255     // bytes of a name
	maxPieces  = 1 << 16 // of one range
)

// allRefs stands for all that was asked for over a connection, be it answered or not. The
// importer has closed it, and maps no more of it.
const allRefs = 0

// header begins a message.
type header struct {
	kind kind
	file bool // a descriptor comes with it
	size int  // bytes of the body
}

func (h header) bytes() []byte {
	return binary.LittleEndian.AppendUint32([]byte{byte(h.kind), 0, 0, 0}, uint32(h.size))
}

func parseHeader(b [headerSize]byte) (header, error) {
	size := binary.LittleEndian.Uint32(b[4:])
	h := header{kind: kind(b[0]), file: b[1] == 1, size: int(size)}
	if h.kind < helloKind || h.kind > errorKind || b[1] > 1 || b[2] != 0 || b[3] != 0 || size > maxBody || h.file && h.kind != pieceKind {
		return header{}, fmt.Errorf("cupool: ipc: a message that begins with % x: %w", b, ErrProtocol)
	}
	return h, nil
}

// body reads the numbers and bytes of a message's body.
type body struct {
	kind kind
	rest []byte
	bad  bool
}

func (b *body) number() uint64 {
	if len(b.rest) < 8 {
		b.bad = true
		return 0
	}
	v := binary.LittleEndian.Uint64(b.rest)
	b.rest = b.rest[8:]
	return v
}

// tail returns all that is left. More than n bytes make the body a bad one.
func (b *body) tail(n int) []byte {
	t := b.rest
	b.rest, b.bad = nil, b.bad || len(t) > n
	return t
}

// end fails with ErrProtocol where the body had less than was read, or more.
func (b *body) end() error {
	if b.bad || len(b.rest) > 0 {
		return fmt.Errorf("cupool: ipc: a message of kind %d has a wrong length: %w", b.kind, ErrProtocol)
	}
	return nil
}

// expect fails with ErrProtocol unless a message is of a kind.
func (b *body) expect(k kind) error {
	if b.kind != k {
		return fmt.Errorf("cupool: ipc: a message of kind %d where one of kind %d should be: %w", b.kind, k, ErrProtocol)
	}
	return nil
}

// message puts a body together.
func message(k kind, tail []byte, numbers ...uint64) []byte {
	b := header{kind: k, size: 8*len(numbers) + len(tail)}.bytes()
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return append(b, tail...)
}

// pieceMessage describes a piece, whose file goes with it.
func pieceMessage(p device.SharedPiece) []byte {
	if p.File == nil {
		return message(pieceKind, p.Name[:], uint64(p.Size))
	}
	b := message(pieceKind, nil, uint64(p.Size))
	b[1] = 1
	return b
}

func parsePiece(b *body, file bool) (p device.SharedPiece, err error) {
	if err := b.expect(pieceKind); err != nil {
		return p, err
	}
	p.Size = int64(b.number())
	name := b.tail(len(p.Name))
	if copy(p.Name[:], name); file != (len(name) == 0) || !file && len(name) != len(p.Name) {
		b.bad = true
	}
	return p, b.end()
}

// opened is the answer to open, before its pieces.
type opened struct {
	request, ref uint64
	skip, size   int64
	pieces       int
}

func (o opened) message() []byte {
	return message(openedKind, nil, o.request, o.ref, uint64(o.skip), uint64(o.size), uint64(o.pieces))
}

func parseOpened(b *body) (o opened, err error) {
	o = opened{request: b.number(), ref: b.number(), skip: int64(b.number()), size: int64(b.number())}
	n := b.number()
	if o.pieces = int(n); o.ref == 0 || n == 0 || n > maxPieces || o.skip < 0 || o.size <= 0 {
		b.bad = true
	}
	return o, b.end()
}

// codes are the errors that cross the socket, by number.
var codes = []error{ErrProtocol, ErrRefused, ErrUnknownName, cupool.ErrNotSupported, cupool.ErrClosed, cupool.ErrOutOfMemory, cupool.ErrDeviceLost}

// remoteError is an error of the other process.
type remoteError struct {
	text  string
	cause error // of codes, or nil
}

func (e *remoteError) Error() string { return "cupool: ipc: the other process says: " + e.text }

func (e *remoteError) Unwrap() error { return e.cause }
