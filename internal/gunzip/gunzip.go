// Package gunzip reads files that gzip may have compressed, and bounds what a
// small one grows to: a file of 1 MB that somebody else made may hold 1 GB of
// zeros.
package gunzip

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/cupool/cupool/internal/bytesize"
)

// The most that a compressed file may grow to: Fixed bytes, and Factor more for
// each byte of it. A file that has not been compressed has no limit. MNIST grows
// by a factor of 5, a snapshot of PyTorch by 8, a trace of a loop by up to 100.
const (
	Fixed  = 16 << 20
	Factor = 128
)

// ErrTooLarge is the error of a compressed file that grows to more than it may.
// What is trusted can be decompressed before and read then.
var ErrTooLarge = errors.New("decompress it with gunzip first if it is to be trusted")

const bufferSize = 1 << 16

// NewReader returns the contents of r, decompressed where the first two bytes
// say that gzip wrote it. It fails with the error of compress/gzip where what
// follows them is damaged. Reading fails with ErrTooLarge, with the errors of
// compress/gzip, or with those of r.
func NewReader(r io.Reader) (*bufio.Reader, error) {
	in := &counter{Reader: r}
	br := bufio.NewReaderSize(in, bufferSize)
	if magic, _ := br.Peek(2); string(magic) != "\x1f\x8b" {
		return br, nil
	}
	z, err := gzip.NewReader(br)
	if err != nil {
		return nil, err
	}
	return bufio.NewReaderSize(&bounded{zip: z, in: in, ahead: br}, bufferSize), nil
}

// counter counts the bytes that were read.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// bounded decompresses until there is too much.
type bounded struct {
	zip   *gzip.Reader
	in    *counter
	ahead *bufio.Reader // of in; what it holds has not been decompressed yet
	out   int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.zip.Read(p)
	b.out += int64(n)
	if in := b.in.n - int64(b.ahead.Buffered()); b.out > Fixed+Factor*in {
		return 0, fmt.Errorf("%s of gzip grow to more than %s: %w", bytesize.Format(in), bytesize.Format(Fixed+Factor*in), ErrTooLarge)
	}
	return n, err
}
