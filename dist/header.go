package dist

import (
	"encoding/binary"
	"fmt"

	"github.com/cupool/cupool"
)

// A kind says which method a call is.
type kind uint8

const (
	allReduce kind = iota + 1
	broadcast
	allGather
	reduceScatter
	send
	recv
)

var kindNames = [...]string{"no call", "AllReduce", "Broadcast", "AllGather", "ReduceScatter", "Send", "Recv"}

// headerSize is in bytes.
const headerSize = 32

// A header says what a rank called. It goes before the elements, so that ranks
// that called different things find out.
type header struct {
	number uint64 // of the rank's collective calls; 0: a Send
	count  uint64 // elements
	root   uint32 // of a Broadcast
	kind   kind
	op     uint8
	typ    uint8
}

func (h header) put(b []byte) {
	binary.LittleEndian.PutUint64(b, h.number)
	binary.LittleEndian.PutUint64(b[8:], h.count)
	binary.LittleEndian.PutUint32(b[16:], h.root)
	b[20], b[21], b[22] = byte(h.kind), h.op, h.typ
}

func getHeader(b []byte) header {
	return header{
		number: binary.LittleEndian.Uint64(b), count: binary.LittleEndian.Uint64(b[8:]), root: binary.LittleEndian.Uint32(b[16:]),
		kind: kind(b[20]), op: b[21], typ: b[22],
	}
}

func (h header) String() string {
	name := "an unknown call"
	if int(h.kind) < len(kindNames) {
		name = kindNames[h.kind]
	}
	s := fmt.Sprintf("%s of %d %v elements", name, h.count, Type(h.typ))
	switch h.kind {
	case allReduce, reduceScatter:
		s += fmt.Sprintf(" (%v)", Op(h.op))
	case broadcast:
		s += fmt.Sprintf(" from rank %d", h.root)
	}
	if h.number > 0 {
		s += fmt.Sprintf(", its collective call %d", h.number)
	}
	return s
}

// differs is the error of a rank whose peer called something else.
func (h header) differs(rank, peer int, theirs header) error {
	return fmt.Errorf("dist: rank %d called %v, and rank %d called %v: %w: all ranks make the same calls in the same order",
		rank, h, peer, theirs, cupool.ErrSizeMismatch)
}
