package model

import (
	"context"

	"github.com/cupool/cupool"
)

// newBuffer makes a buffer, whose block is one as others are, or has one for a while.
func (r *runner) newBuffer() {
	p, s, how := r.pickPool(), r.pickStream(), r.n(4)
	size := []int64{1, 512, 1000, 5000, 70000}[r.n(5)]
	var buf *cupool.Buffer[byte]
	var data []byte
	if how == 0 {
		size = min(size, 5000) // which Sleep keeps
		data = make([]byte, size)
		fill(data, byte(1+r.steps%255))
	}
	b := r.ask(p, s, size, context.Background(), func() (h cupool.Block, err error) {
		switch how {
		case 0:
			buf, err = r.bufferFrom(p, data, s)
		case 1:
			return h, r.withBuffer(p, int(size), s)
		default:
			buf, err = cupool.NewBuffer[byte](p, int(size), s.Stream)
		}
		if err == nil {
			h = buf.Block()
		}
		return h, err
	})
	if b == nil {
		return
	}
	b.buffer = buf
	if data != nil {
		r.wrote(b, data[0], s, true)
	}
	if buf.Len() != int(size) || buf.Bytes() != size || buf.Ptr() != b.Ptr() || buf.Stream() != s.Stream {
		r.fail("books: a buffer of %d elements has %d, in %d bytes at %v, for %v", size, buf.Len(), buf.Bytes(), buf.Ptr(), b)
	}
}

// bufferFrom makes a buffer that is written at once.
func (r *runner) bufferFrom(p *Pool, data []byte, s *Stream) (*cupool.Buffer[byte], error) {
	p.using.RLock()
	defer p.using.RUnlock()
	r.mu.Lock()
	usable := p.state == open && !p.asleep && (r.exact || p != r.root) // which may give memory of others
	r.mu.Unlock()
	if !usable {
		return nil, errUnusable
	}
	buf, err := cupool.BufferFrom(p, data, s.Stream)
	if err != nil && !r.exact { // what was allocated for it may have been freed
		r.mu.Lock()
		p.loose = true
		r.mu.Unlock()
	}
	return buf, err
}

// withBuffer has a buffer for a while.
func (r *runner) withBuffer(p *Pool, n int, s *Stream) error {
	return cupool.WithBuffer(p, n, s.Stream, func(buf *cupool.Buffer[byte]) error {
		b := &Block{Block: buf.Block(), pool: r.poolOf(p, buf.Block()), on: s}
		r.born(b)
		r.write(b)
		r.dies(b, false)
		return nil
	})
}

// useBuffer makes a call on a buffer that is live, on its stream or on another one.
func (r *runner) useBuffer() {
	how, k, o := r.n(8), int(r.next()), r.pickStream()
	var list []*Block
	for _, b := range r.blocks {
		if b.buffer != nil && !r.isDead(b) {
			list = append(list, b)
		}
	}
	if len(list) == 0 {
		return
	}
	b := list[k%len(list)]
	s, buf, n := b.on, b.buffer, b.buffer.Len()
	r.logf(" %v: %d", b.Block, how)
	switch how {
	case 0:
		value := r.fresh(b)
		ok := r.afterReaders(b, s) && r.use(b, s, "Buffer.Memset", func() error { r.content(b); return buf.Memset(value) })
		r.wrote(b, value, s, ok)
	case 1:
		data := make([]byte, n)
		value := r.fresh(b)
		fill(data, value)
		ok := r.afterReaders(b, s) && r.use(b, s, "Buffer.CopyFrom", func() error { r.content(b); return buf.CopyFrom(data) })
		r.wrote(b, value, s, ok)
	case 2:
		data := make([]byte, n)
		r.readTo(b, s, data, func() error { return buf.CopyTo(data) })
	case 3:
		i := k % n
		r.readTo(b, s, nil, func() error {
			part, err := buf.View(i, n)
			if err != nil {
				return err
			}
			data, err := part.ToHost()
			if err == nil {
				r.sees(b, b.value, data)
			}
			return err
		})
	case 4:
		r.bufferOn(b, o)
	case 5:
		r.copyBuffer(b, list[(k+1)%len(list)])
	case 6:
		r.drop(b, false)
		r.judge("Buffer.Free", buf.Free(), r.freeReasons(b))
	default:
		var none *cupool.Buffer[byte]
		r.judge("Buffer.Memset of nil", none.Memset(0), &reasons{[]error{cupool.ErrInvalidHandle}, true})
		r.judge("Buffer.CopyFrom of another length", buf.CopyFrom(make([]byte, n+1)), &reasons{[]error{cupool.ErrSizeMismatch}, true})
		_, err := buf.View(n, n+1)
		r.judge("Buffer.View beyond the end", err, &reasons{[]error{cupool.ErrInvalidRange}, true})
	}
}

// readTo reads a buffer on a stream.
func (r *runner) readTo(b *Block, s *Stream, data []byte, read func() error) {
	if !r.comeAfter(b, s) {
		return
	}
	var value byte
	ok := r.use(b, s, "reading a buffer", func() error { value = r.content(b); return read() })
	if ok && data != nil {
		r.sees(b, value, data)
	}
}

// bufferOn reads a buffer on another stream.
func (r *runner) bufferOn(b *Block, s *Stream) {
	r.noteUse(b, s)
	view, err := b.buffer.On(s.Stream)
	want := r.freeReasons(b).onStream(r.Model, s)
	want.must = false // what a closed stream was given is done
	if r.judge("Buffer.On", err, want); err != nil {
		return
	}
	r.judge("Buffer.Free of a view", view.Free(), &reasons{[]error{cupool.ErrInteriorPointer}, true})
	data := make([]byte, view.Len())
	r.readTo(b, s, data, func() (err error) {
		got, err := view.ToHost()
		copy(data, got)
		return err
	})
}

// copyBuffer copies a buffer to another one, on the stream of that.
func (r *runner) copyBuffer(src, dst *Block) {
	s := dst.on
	if src == dst || src.buffer.Len() != dst.buffer.Len() {
		if src != dst {
			r.judge("Buffer.CopyBuffer of another length", dst.buffer.CopyBuffer(src.buffer), &reasons{[]error{cupool.ErrSizeMismatch}, true})
		}
		return
	}
	if !r.comeAfter(src, s) || s != r.owner(src) && !r.record(src, s) || !r.afterReaders(dst, s) {
		return
	}
	var value byte
	ok := r.useAll([]*Block{src, dst}, s, "Buffer.CopyBuffer", func() error {
		value = r.content(src)
		r.content(dst)
		return dst.buffer.CopyBuffer(src.buffer)
	})
	r.copied(dst, src, value, s, ok)
}
