package dist

import (
	"bufio"
	"io"
	"net"
	"sync"
)

// A tcpLink is a link over a connection. A goroutine of its own writes what is
// queued, so that two ranks that write to each other do not wait for each other.
type tcpLink struct {
	conn net.Conn
	in   *bufio.Reader

	mu      sync.Mutex
	changed sync.Cond
	queue   net.Buffers // what waits to be written
	spare   net.Buffers // the last queue's array
	busy    bool        // the writer is at work
	err     error
	done    chan struct{} // closed when the writer has ended
}

func newTCPLink(conn net.Conn) *tcpLink {
	l := &tcpLink{conn: conn, in: bufio.NewReaderSize(conn, 4<<10), done: make(chan struct{})}
	l.changed.L = &l.mu
	go l.writer()
	return l
}

func (l *tcpLink) write(b []byte) {
	if len(b) == 0 {
		return
	}
	l.mu.Lock()
	l.queue = append(l.queue, b)
	l.mu.Unlock()
	l.changed.Broadcast()
}

// writer writes what is queued until the link is closed or fails.
func (l *tcpLink) writer() {
	defer close(l.done)
	for {
		batch, ok := l.next()
		if !ok {
			return
		}
		rest := batch
		_, err := rest.WriteTo(l.conn) // consumes rest
		l.wrote(batch[:0], err)
	}
}

// next waits for something to write. It returns false when the link has ended.
func (l *tcpLink) next() (net.Buffers, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && l.err == nil {
		l.changed.Wait()
	}
	if l.err != nil {
		return nil, false
	}
	batch := l.queue
	l.queue, l.spare, l.busy = l.spare[:0], nil, true
	return batch, true
}

func (l *tcpLink) wrote(batch net.Buffers, err error) {
	l.mu.Lock()
	l.spare, l.busy = batch, false
	if l.err == nil {
		l.err = err
	}
	l.mu.Unlock()
	l.changed.Broadcast()
}

func (l *tcpLink) flush() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for (l.busy || len(l.queue) > 0) && l.err == nil {
		l.changed.Wait()
	}
	return l.err
}

func (l *tcpLink) read(b []byte) error {
	_, err := io.ReadFull(l.in, b)
	if err == io.ErrUnexpectedEOF {
		return io.EOF
	}
	return err
}

func (l *tcpLink) close() {
	l.mu.Lock()
	if l.err == nil {
		l.err = errLinkClosed
	}
	l.mu.Unlock()
	l.changed.Broadcast()
	_ = l.conn.Close() // nobody waits for what it says
	<-l.done
}
