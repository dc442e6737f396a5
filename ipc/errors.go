package ipc

import (
	"errors"
	"slices"
	"strings"
)

// errorMessage tells the other side why a request failed. Request 0 is the connection.
func errorMessage(request uint64, err error) []byte {
	code := uint64(1 + slices.IndexFunc(codes, func(c error) bool { return errors.Is(err, c) })) // 0: none
	text := strings.ToValidUTF8(err.Error(), "?")
	return message(errorKind, []byte(text[:min(len(text), maxBody-16)]), request, code)
}

func parseError(b *body) (request uint64, err error) {
	e := &remoteError{}
	request = b.number()
	if code := b.number(); code > 0 && code <= uint64(len(codes)) {
		e.cause = codes[code-1]
	}
	e.text = strings.ToValidUTF8(string(b.tail(maxBody)), "?")
	if err := b.end(); err != nil {
		return 0, err
	}
	return request, e
}
