package ipc

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/device"
)

// bodyOf returns what a message's receiver gets.
func bodyOf(t *testing.T, m []byte) (header, *body) {
	t.Helper()
	h, err := parseHeader([headerSize]byte(m))
	require.NoError(t, err)
	require.Len(t, m, headerSize+h.size)
	return h, &body{kind: h.kind, rest: m[headerSize:]}
}

func TestMessages(t *testing.T) {
	_, b := bodyOf(t, message(openKind, []byte("name"), 5))
	require.EqualValues(t, 5, b.number())
	require.Equal(t, "name", string(b.tail(4)))
	require.NoError(t, b.end())

	o := opened{request: 1, ref: 2, skip: 3, size: 1, pieces: maxPieces}
	_, b = bodyOf(t, o.message())
	got, err := parseOpened(b)
	require.NoError(t, err)
	require.Equal(t, o, got)
	for _, o := range []opened{{ref: 1, size: 1}, {ref: 1, size: 1, pieces: maxPieces + 1}, {ref: 1, pieces: 1}, {ref: 1, skip: -1, size: 1, pieces: 1}, {ref: 1, size: math.MinInt64, pieces: 1}, {size: 1, pieces: 1}} {
		_, b = bodyOf(t, o.message())
		_, err = parseOpened(b)
		require.ErrorIs(t, err, ErrProtocol)
	}

	named := device.SharedPiece{Size: 7, Name: [64]byte{1, 2, 3}}
	h, b := bodyOf(t, pieceMessage(named))
	p, err := parsePiece(b, h.file)
	require.NoError(t, err)
	require.Equal(t, named, p)
	h, b = bodyOf(t, pieceMessage(device.SharedPiece{Size: 8, File: os.Stdin}))
	require.True(t, h.file)
	p, err = parsePiece(b, true)
	require.NoError(t, err)
	require.Equal(t, device.SharedPiece{Size: 8}, p)
	_, b = bodyOf(t, message(pieceKind, []byte("short"), 1))
	_, err = parsePiece(b, false)
	require.ErrorIs(t, err, ErrProtocol)
	_, b = bodyOf(t, message(closedKind, named.Name[:], 1))
	_, err = parsePiece(b, false)
	require.ErrorIs(t, err, ErrProtocol)
	require.ErrorIs(t, (&body{rest: []byte{0}}).end(), ErrProtocol)
}

// TestHeaders: what is too long, or of no kind, is refused.
func TestHeaders(t *testing.T) {
	for _, tc := range []struct {
		header
		good bool
	}{
		{header{kind: helloKind, size: maxBody}, true}, {header{kind: errorKind}, true}, {header{kind: pieceKind, file: true}, true},
		{header{kind: helloKind, size: maxBody + 1}, false}, {header{kind: helloKind - 1}, false}, {header{kind: errorKind + 1}, false}, {header{kind: openedKind, file: true}, false},
	} {
		b := [headerSize]byte(tc.bytes())
		if tc.file {
			b[1] = 1
		}
		got, err := parseHeader(b)
		if tc.good {
			require.NoError(t, err)
			require.Equal(t, tc.header, got)
		} else {
			require.ErrorIs(t, err, ErrProtocol)
		}
	}
	for i := 1; i < 4; i++ {
		b := [headerSize]byte{byte(helloKind)}
		b[i] = 2
		_, err := parseHeader(b)
		require.ErrorIs(t, err, ErrProtocol)
	}
	_, b := bodyOf(t, message(helloKind, nil, magic, 2, 7))
	require.EqualError(t, parseHello(b, Peer{PID: 7}), fmt.Sprintf("cupool: ipc: process 7 speaks version 2 of the protocol, process %d version 1: protocol error", os.Getpid()))
	require.NoError(t, (&body{kind: closeKind}).expect(closeKind))
	require.EqualError(t, (&body{kind: closedKind}).expect(welcomeKind), "cupool: ipc: a message of kind 7 where one of kind 2 should be: protocol error")
}

// TestErrorMessages: errors keep what they match, and long ones their beginning.
func TestErrorMessages(t *testing.T) {
	for _, want := range codes {
		_, b := bodyOf(t, errorMessage(9, errors.Join(errors.New("why"), want)))
		request, err := parseError(b)
		require.EqualValues(t, 9, request)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, "why")
	}
	_, b := bodyOf(t, errorMessage(1, errors.New(strings.Repeat("long", 1000)+"\xff")))
	_, err := parseError(b)
	require.ErrorContains(t, err, "longlong")
	require.NotErrorIs(t, err, cupool.ErrNotSupported)
	_, b = bodyOf(t, message(errorKind, nil, 1))
	_, err = parseError(b)
	require.ErrorIs(t, err, ErrProtocol)
}

// FuzzMessages: whatever comes is read or refused, and never more of it than there is.
func FuzzMessages(f *testing.F) {
	f.Add(message(helloKind, nil, magic, version, 1))
	f.Add(opened{request: 1, ref: 2, size: 4, pieces: 1}.message())
	f.Add(pieceMessage(device.SharedPiece{Size: 7}))
	f.Add(errorMessage(1, ErrGone))
	f.Fuzz(func(t *testing.T, m []byte) {
		if len(m) < headerSize {
			return
		}
		h, err := parseHeader([headerSize]byte(m))
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			return
		}
		require.LessOrEqual(t, h.size, maxBody)
		read := func() *body { return &body{kind: h.kind, rest: m[headerSize:]} }
		if o, err := parseOpened(read()); err == nil {
			require.LessOrEqual(t, o.pieces, maxPieces)
			require.Equal(t, m[headerSize:], o.message()[headerSize:])
		}
		if p, err := parsePiece(read(), h.file); err == nil && !h.file {
			require.Equal(t, m[headerSize:], pieceMessage(p)[headerSize:])
		}
		_, _ = parseError(read())
		_ = parseHello(read(), Peer{PID: 1})
	})
}
