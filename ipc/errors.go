package ipc

import (
	"errors"
	"strings"
)

// errorMessage tells the other side why a request failed. Request 0 is the connection.
func errorMessage(request uint64, err error) []byte {
	code := uint64(0)
	for i, c := range codes {
		if errors.Is(err, c) {
			code = uint64(i + 1)
			break
		}
	}
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
