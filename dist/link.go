package dist

import (
	"errors"
	"io"
	"sync"
)

// errLinkClosed: this rank closed the link.
var errLinkClosed = errors.New("link closed")

// A link carries bytes between this rank and another one, in both directions.
// One goroutine at a time writes, and one reads.
type link interface {
	// write queues b and does not wait. b does not change before flush
	// returns, or before the other rank answers what it has read.
	write(b []byte)
	// flush waits until all that was written has left this rank's memory.
	flush() error
	// read fills b. It fails with io.EOF where the other rank is gone.
	read(b []byte) error
	// close ends both directions, and all calls fail from then on. When it
	// returns, nobody reads what this rank has written.
	close()
}

// A pipe is one direction of a link between ranks of one process: the reader
// copies from the writer's memory.
type pipe struct {
	mu      sync.Mutex
	changed sync.Cond
	queue   [][]byte
	head    int  // the first of queue that is not read yet
	reading bool // the reader copies from it
	err     error
}

func newPipe() *pipe {
	p := new(pipe)
	p.changed.L = &p.mu
	return p
}

func (p *pipe) write(b []byte) {
	if len(b) == 0 {
		return
	}
	p.mu.Lock()
	p.queue = append(p.queue, b)
	p.mu.Unlock()
	p.changed.Broadcast()
}

func (p *pipe) flush() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.head < len(p.queue) && p.err == nil {
		p.changed.Wait()
	}
	if p.head == len(p.queue) { // a reader that has it all may close
		return nil
	}
	return p.err
}

func (p *pipe) read(b []byte) error {
	for len(b) > 0 {
		from, err := p.front()
		if err != nil {
			return err
		}
		n := copy(b, from)
		b = b[n:]
		p.took(n)
	}
	return nil
}

// front waits for bytes and returns them. They stay until took.
func (p *pipe) front() ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.head == len(p.queue) && p.err == nil {
		p.changed.Wait()
	}
	if p.err != nil {
		return nil, p.err
	}
	p.reading = true
	return p.queue[p.head], nil
}

func (p *pipe) took(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = false
	if p.err != nil {
		p.changed.Broadcast()
		return
	}
	if p.queue[p.head] = p.queue[p.head][n:]; len(p.queue[p.head]) > 0 {
		return
	}
	p.queue[p.head] = nil
	if p.head++; p.head == len(p.queue) {
		p.queue, p.head = p.queue[:0], 0
		p.changed.Broadcast()
	}
}

// close returns when the reader copies no more: the memory may be gone then.
func (p *pipe) close(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.changed.Broadcast()
	for p.reading {
		p.changed.Wait()
	}
}

// A memLink is a rank's end of two pipes.
type memLink struct{ in, out *pipe }

func (l memLink) write(b []byte)      { l.out.write(b) }
func (l memLink) flush() error        { return l.out.flush() }
func (l memLink) read(b []byte) error { return l.in.read(b) }

func (l memLink) close() {
	l.in.close(errLinkClosed)
	l.out.close(io.EOF)
}
