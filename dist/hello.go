package dist

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
)

// A connection begins so, whoever listens: the listener sends a greeting with a
// number that is used once, the other side answers with a hello that is signed
// with the token and that number, and the listener accepts or refuses it with a
// signed reason. All of it has fixed sizes but the reason, so that strangers on
// the port are recognized by their first bytes.

const (
	magic   = "cupooldi"
	version = 1
	maxSize = 1 << 16 // ranks

	greetingSize = len(magic) + 2 + 32
	helloSize    = len(magic) + 2 + 2 + 4 + 4 + 4 + 32 + 32
	maxReason    = 1 << 10
)

// What a connection is for.
const (
	forStore = iota + 1 // of the rendezvous
	forLink             // of a Comm
)

// A hello is what a process says of itself.
type hello struct {
	purpose    uint16
	size, rank uint32
	comm       uint32 // forLink: which Comm of the group
}

// The codes of an answer.
const (
	welcome = iota
	wrongVersion
	wrongToken
	wrongSize
	takenRank
	notExpected
)

// A refusal is an answer that is not welcome.
type refusal struct {
	code   byte
	reason string
}

func (r *refusal) Error() string { return r.reason }

// errStranger: the other side does not speak this protocol.
var errStranger = fmt.Errorf("something else than a rank of this package answers there")

type nonce [32]byte

func newNonce() (n nonce) {
	_, _ = rand.Read(n[:]) // it never fails
	return n
}

func sign(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// greet is the listener's side. It returns the hello and the other side's number,
// for answer. A *refusal is to be answered, other errors are not. keyOf gives the
// key of a purpose.
func greet(rw io.ReadWriter, keyOf func(purpose uint16) []byte) (hello, nonce, error) {
	own := newNonce()
	b := append([]byte(magic), 0, version)
	if _, err := rw.Write(append(b, own[:]...)); err != nil {
		return hello{}, nonce{}, err
	}
	in := make([]byte, helloSize)
	if n, err := io.ReadFull(rw, in[:len(magic)]); err != nil || string(in[:n]) != magic {
		return hello{}, nonce{}, errStranger
	}
	if _, err := io.ReadFull(rw, in[len(magic):]); err != nil {
		return hello{}, nonce{}, errStranger
	}
	return readHello(in, own, keyOf)
}

func readHello(in []byte, own nonce, keyOf func(uint16) []byte) (h hello, theirs nonce, err error) {
	body, mac := in[:helloSize-32], in[helloSize-32:]
	v := binary.BigEndian.Uint16(body[len(magic):])
	f := body[len(magic)+2:]
	h = hello{purpose: binary.BigEndian.Uint16(f), size: binary.BigEndian.Uint32(f[2:]), rank: binary.BigEndian.Uint32(f[6:]), comm: binary.BigEndian.Uint32(f[10:])}
	copy(theirs[:], f[14:])
	if v != version {
		return h, theirs, &refusal{wrongVersion, fmt.Sprintf("it speaks version %d of the protocol, this rank %d: run the same version of the program everywhere", v, version)}
	}
	if !hmac.Equal(mac, sign(keyOf(h.purpose), own[:], body)) {
		return h, theirs, &refusal{wrongToken, "its token is not this group's: see Config.Token"}
	}
	return h, theirs, nil
}

// answer accepts (a nil refusal) or refuses a hello.
func answer(w io.Writer, key []byte, theirs nonce, r *refusal) error {
	b := []byte{welcome, 0, 0}
	if r != nil {
		reason := r.reason[:min(len(r.reason), maxReason)]
		b = append([]byte{r.code, byte(len(reason) >> 8), byte(len(reason))}, reason...)
	}
	_, err := w.Write(append(b, sign(key, theirs[:], b)...))
	return err
}

// introduce is the other side's part. It fails with a *refusal, with errStranger,
// or as the connection does.
func introduce(rw io.ReadWriter, key []byte, h hello) error {
	in := make([]byte, greetingSize)
	if n, err := io.ReadFull(rw, in); err != nil {
		if n > 0 && !bytes.HasPrefix([]byte(magic), in[:min(n, len(magic))]) {
			return errStranger
		}
		return err
	}
	if string(in[:len(magic)]) != magic {
		return errStranger
	}
	own := newNonce()
	b := append([]byte(magic), 0, version)
	b = binary.BigEndian.AppendUint16(b, h.purpose)
	b = binary.BigEndian.AppendUint32(b, h.size)
	b = binary.BigEndian.AppendUint32(b, h.rank)
	b = binary.BigEndian.AppendUint32(b, h.comm)
	b = append(b, own[:]...)
	b = append(b, sign(key, in[len(magic)+2:], b)...)
	if _, err := rw.Write(b); err != nil {
		return err
	}
	return readAnswer(rw, key, own)
}

func readAnswer(r io.Reader, key []byte, own nonce) error {
	head := make([]byte, 3)
	if _, err := io.ReadFull(r, head); err != nil {
		return err
	}
	n := int(binary.BigEndian.Uint16(head[1:]))
	if n > maxReason {
		return errStranger
	}
	rest := make([]byte, n+32)
	if _, err := io.ReadFull(r, rest); err != nil {
		return err
	}
	refused := head[0] != welcome
	if !hmac.Equal(rest[n:], sign(key, own[:], head, rest[:n])) && head[0] != wrongToken && head[0] != wrongVersion {
		return &refusal{wrongToken, "its token is not this rank's: see Config.Token"}
	}
	if refused {
		return &refusal{head[0], string(rest[:n])}
	}
	return nil
}
