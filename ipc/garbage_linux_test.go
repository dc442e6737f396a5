package ipc_test

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/ipc"
)

// hello is what an importer says first.
func hello(version, pid int) []byte {
	return frame(1, 0, 0x4350497563, uint64(version), uint64(pid))
}

// frame is a message of numbers.
func frame(kind, flag byte, numbers ...uint64) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{kind, flag, 0, 0}, uint32(8*len(numbers)))
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	return b
}

// TestServerGarbage: what does not speak the protocol is told so and cut off, and
// disturbs nobody.
func TestServerGarbage(t *testing.T) {
	g := newRig(t, ipc.Config{})
	g.share("x", 1000)
	pid := os.Getpid()
	greeted := func(b []byte) []byte { return append(hello(1, pid), b...) }
	for name, b := range map[string][]byte{
		"text": []byte("GET / HTTP/1.1\r\n\r\n"), "zeros": make([]byte, 64), "another version": hello(2, pid), "no magic": frame(1, 0, 1, 1, 1), "a hello of another kind": frame(3, 0, 0x4350497563, 1, uint64(pid)),
		"short hello": frame(1, 0, 0x4350497563, 1), "long hello": frame(1, 0, 0x4350497563, 1, uint64(pid), 0), "no hello": frame(3, 0, 1),
		"huge": {3, 0, 0, 0, 255, 255, 255, 255}, "hello again": greeted(hello(1, pid)), "kind 9": greeted(frame(9, 0)),
		"a long name": greeted(append([]byte{3, 0, 0, 0, 8, 1, 0, 0}, make([]byte, 8+256)...)), "an answer": greeted(frame(4, 0, 1, 1, 0, 10, 1)),
		"closing what is not open": greeted(frame(6, 0, 1, 77)), "closing all and more": greeted(frame(6, 0, 1, 0, 1)),
		"a file that is none": greeted(frame(5, 1, 10)), "flags": greeted(frame(3, 2, 1)),
	} {
		c := g.dial()
		_, err := c.Write(b)
		require.NoError(t, err, name)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(waitTime)))
		said, err := io.ReadAll(c)
		if err == nil { // else what was left unread has reset the connection
			require.Contains(t, string(said), "protocol error", name)
			for len(said) > 8 && said[0] != 8 { // an error
				said = said[8+binary.LittleEndian.Uint32(said[4:]):]
			}
			require.Equal(t, make([]byte, 8), said[8:16], "it is of the connection")
		} else {
			require.ErrorIs(t, err, syscall.ECONNRESET, name)
		}
	}
	m, err := g.connect().Open(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, m.Close(t.Context()))
}

// TestServerDescriptors: descriptors that a server has not asked for are closed.
func TestServerDescriptors(t *testing.T) {
	g := newRig(t, ipc.Config{})
	before, err := openFiles("")
	require.NoError(t, err)
	for n := 1; n <= 100; n += 33 {
		c := g.dial()
		null, err := os.Open(os.DevNull)
		require.NoError(t, err)
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		_, _, err = c.WriteMsgUnix(hello(1, os.Getpid()), syscall.UnixRights(fds...), nil)
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(waitTime)))
		_, _ = io.ReadAll(c)
		require.NoError(t, c.Close())
		require.NoError(t, null.Close())
		require.Eventually(t, func() bool { now, err := openFiles(""); return now <= before && err == nil }, waitTime, 1e6)
	}
}

// TestHeaderInParts: of a header that comes in parts, one may bring a file.
func TestHeaderInParts(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it closes files that are lost
	ends := socketpair(t)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	before, err := openFiles(os.DevNull)
	require.NoError(t, err)
	piece := frame(5, 1, 4096)
	for _, files := range [][2]int{{1, 0}, {0, 1}, {1, 1}} {
		for i, b := range [][]byte{piece[:4], piece[4:]} {
			_, _, err := ends[1].WriteMsgUnix(b, syscall.UnixRights(slices.Repeat([]int{int(null.Fd())}, files[i])...), nil)
			require.NoError(t, err)
		}
		f, err := ipc.Receive(ends[0])
		if files == [2]int{1, 1} {
			require.ErrorIs(t, err, ipc.ErrProtocol)
			require.Regexp(t, "^cupool: ipc: protocol error: ", err.Error())
		} else {
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		now, err := openFiles(os.DevNull)
		require.NoError(t, err)
		require.Equal(t, before, now)
	}
}

// TestSay: a message that does not reach the other end is an error.
func TestSay(t *testing.T) {
	ends := socketpair(t)
	require.NoError(t, ipc.Say(ends[0], frame(7, 0, 1)))
	require.NoError(t, ends[1].Close())
	require.ErrorIs(t, ipc.Say(ends[0], frame(7, 0, 1)), ipc.ErrGone)
}

// TestEndOfConnection: wherever a connection ends, the other end is gone.
func TestEndOfConnection(t *testing.T) {
	m := frame(7, 0, 1)
	for n := range m {
		ends := socketpair(t)
		_, err := ends[1].Write(m[:n])
		require.NoError(t, errors.Join(err, ends[1].Close()))
		_, err = ipc.Receive(ends[0])
		require.EqualError(t, err, "cupool: ipc: the connection has ended: the other process is gone")
	}
}

// answerWith is an exporter that welcomes and answers the first request with what is given.
func answerWith(t *testing.T, welcome, answer []byte, fds ...int) *net.UnixConn {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: t.TempDir() + "/s", Net: "unix"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		b := make([]byte, 32)
		_, _ = io.ReadFull(c, b)
		if _, _ = c.Write(welcome); len(welcome) > 0 {
			_, _ = c.Read(make([]byte, 1024))
		}
		if len(answer) > 0 {
			var rights []byte
			if len(fds) > 0 {
				rights = syscall.UnixRights(fds...)
			}
			_, _, _ = c.WriteMsgUnix(answer, rights, nil)
		}
		_ = c.Close()
	}()
	c, err := net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	require.NoError(t, err)
	return c
}

// named is a piece of memory without a file.
func named(size uint64) []byte {
	return frame(5, 0, append([]uint64{size}, make([]uint64, 8)...)...)
}

// TestClientGarbage: an exporter that does not speak the protocol, or lies, makes no
// more than an error.
func TestClientGarbage(t *testing.T) {
	pool := newPool(t, openHost)
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	fd := int(null.Fd())
	welcome := frame(2, 0, 0x4350497563, 1)
	for name, w := range map[string][]byte{
		"nothing": nil, "text": []byte("220 mail.example ESMTP\r\n"), "another version": frame(2, 0, 0x4350497563, 2), "an error": frame(8, 0, 0, 1),
		"a welcome of another kind": frame(7, 0, 0x4350497563, 1),
	} {
		_, err := ipc.Connect(t.Context(), pool, answerWith(t, w, nil), ipc.Config{})
		require.Error(t, err, name)
		if name == "another version" {
			require.ErrorContains(t, err, "welcomes with version 2 of the protocol, this is version 1")
		}
	}
	piece := frame(5, 1, 4096)
	before, err := openFiles(os.DevNull)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		answer []byte
		fds    []int
	}{
		"nothing": {}, "text": {[]byte("hello hello hello"), nil}, "no piece": {frame(4, 0, 1, 1, 0, 4096, 1), nil},
		"many pieces": {frame(4, 0, 1, 1, 0, 4096, 1<<40), nil}, "none": {frame(4, 0, 1, 1, 0, 4096, 0), nil}, "a negative size": {frame(4, 0, 1, 1, 0, 1<<63, 1), nil},
		"no file": {append(frame(4, 0, 1, 1, 0, 4096, 1), piece...), nil}, "a file at the wrong place": {frame(4, 0, 1, 1, 0, 4096, 1), []int{fd}},
		"two files": {piece, []int{fd, fd}}, "nine files": {piece, []int{fd, fd, fd, fd, fd, fd, fd, fd, fd}}, "an answer to nothing": {frame(7, 0, 99), nil},
		"a request": {frame(3, 0, 1), nil}, "closed": {frame(7, 0, 1, 2), nil},
		"closed, not opened": {frame(7, 0, 1), nil}, "no reference": {append(frame(4, 0, 1, 0, 0, 4096, 1), named(4096)...), nil},
		"a short error": {frame(8, 0, 1), nil}, "a piece of nothing": {piece, []int{fd}},
		"more than its pieces": {append(frame(4, 0, 1, 1, 0, 4097, 1), named(4096)...), nil},
	} {
		client, err := ipc.Connect(t.Context(), pool, answerWith(t, welcome, c.answer, c.fds...), ipc.Config{})
		require.NoError(t, err, name)
		_, err = client.Open(t.Context(), "x")
		require.Error(t, err, name)
		if name == "closed, not opened" || name == "no reference" {
			require.ErrorIs(t, err, ipc.ErrProtocol, name)
		}
		if c.fds != nil || name == "a short error" || name == "an answer to nothing" {
			<-client.Done()
			require.ErrorIs(t, client.Err(), ipc.ErrProtocol, name)
		}
		if name == "more than its pieces" {
			require.ErrorContains(t, err, "cupool: ipc: protocol error: ")
		}
		<-client.Done()
		require.NoError(t, client.Close(t.Context()), name)
	}
	require.Eventually(t, func() bool { now, err := openFiles(os.DevNull); return now == before && err == nil }, waitTime, 1e6)
}

// TestClientRandomAnswers: random bytes, some after a true beginning.
func TestClientRandomAnswers(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	pool := newPool(t, openHost)
	for range 100 {
		answer := frame(4, 0, 1, 1, r.Uint64N(1<<13), r.Uint64N(1<<13), r.Uint64N(4))
		for range r.IntN(4) {
			answer = append(answer, frame(byte(r.IntN(10)), byte(r.IntN(3)), r.Uint64N(1<<r.IntN(63)))...)
		}
		if len(answer) > 8 && r.IntN(2) == 0 {
			answer[r.IntN(len(answer))] ^= byte(1 << r.IntN(8))
		}
		client, err := ipc.Connect(t.Context(), pool, answerWith(t, frame(2, 0, 0x4350497563, 1), answer), ipc.Config{})
		require.NoError(t, err)
		_, err = client.Open(t.Context(), "x")
		require.Error(t, err, "no memory came")
		require.NoError(t, client.Close(t.Context()))
	}
}
