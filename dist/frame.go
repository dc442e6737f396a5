package dist

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A frame is a message between rank 0's store and another rank.
type frame struct {
	kind  byte
	id    uint32 // of a get and its value; the rank that failed
	key   string
	value []byte
}

// The kinds of frames.
const (
	frameSet    = iota + 1
	frameGet    // is answered by a frameValue with the same id, when there is one
	frameValue  //
	frameStart  // all ranks have joined; value: the group's session
	frameFailed // a rank failed; value: why
	frameBye    // the sender closes the group
)

// The largest key and value in bytes.
const (
	maxKey   = 1 << 10
	maxValue = 1 << 20
)

const frameHead = 1 + 4 + 2 + 4

func (f frame) append(b []byte) []byte {
	b = append(b, f.kind)
	b = binary.BigEndian.AppendUint32(b, f.id)
	b = binary.BigEndian.AppendUint16(b, uint16(len(f.key)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.value)))
	return append(append(b, f.key...), f.value...)
}

// readFrame reads a frame. It fails with what the reader says, io.EOF between
// frames, and for what is none.
func readFrame(r io.Reader) (frame, error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	f := frame{kind: head[0], id: binary.BigEndian.Uint32(head[1:])}
	key, value := int(binary.BigEndian.Uint16(head[5:])), int64(binary.BigEndian.Uint32(head[7:]))
	if f.kind < frameSet || f.kind > frameBye || key > maxKey || value > maxValue {
		return frame{}, fmt.Errorf("a message of kind %d with a key of %d and a value of %d bytes, which is none of this package", f.kind, key, value)
	}
	b := make([]byte, int64(key)+value)
	if _, err := io.ReadFull(r, b); err != nil {
		return frame{}, io.ErrUnexpectedEOF
	}
	f.key, f.value = string(b[:key]), b[key:]
	return f, nil
}
