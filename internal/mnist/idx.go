package mnist

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cupool/cupool/internal/gunzip"
)

// The magic numbers: two zero bytes, 8 for unsigned bytes, the number of
// dimensions.
const (
	imageMagic = 0x00000803
	labelMagic = 0x00000801
)

// maxBytes bounds what a header may announce; all of MNIST has 47 million, and
// EMNIST 547 million.
const maxBytes = 1 << 30

// A file is one IDX file that is being read.
type file struct {
	name string // for errors
	r    io.Reader
}

// newFile decompresses what gzip wrote.
func newFile(name string, r io.Reader) (*file, error) {
	br, err := gunzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("%s: damaged gzip header: %w", name, err)
	}
	return &file{name, br}, nil
}

// images reads an image file to its end.
func (f *file) images() (Images, error) {
	dims, err := f.header("image", imageMagic, 3)
	if err != nil {
		return Images{}, err
	}
	m := Images{N: dims[0], Rows: dims[1], Cols: dims[2]}
	m.Pixels, err = f.body("pixels", dims)
	return m, err
}

// labels reads a label file to its end.
func (f *file) labels() ([]byte, error) {
	dims, err := f.header("label", labelMagic, 1)
	if err != nil {
		return nil, err
	}
	labels, err := f.body("labels", dims)
	if err != nil {
		return nil, err
	}
	for i, l := range labels {
		if l >= Classes {
			return nil, fmt.Errorf("%s: expected labels from 0 to %d, found %d as the label of image %d",
				f.name, Classes-1, l, i)
		}
	}
	return labels, nil
}

// header reads the magic number and the sizes of n dimensions.
func (f *file) header(kind string, magic uint32, n int) ([]int, error) {
	head := make([]byte, 4+4*n)
	got, err := io.ReadFull(f.r, head)
	if got >= 4 {
		if m := binary.BigEndian.Uint32(head); m != magic {
			return nil, fmt.Errorf("%s: not an IDX %s file: expected magic number %#08x, found %#08x%s",
				f.name, kind, magic, m, whatIs(m))
		}
	}
	if err != nil {
		return nil, f.truncated(err, "header", int64(len(head)), int64(got))
	}
	dims, total := make([]int, n), int64(1)
	for i := range dims {
		d := binary.BigEndian.Uint32(head[4+4*i:])
		if d == 0 {
			return nil, fmt.Errorf("%s: expected at least one element in dimension %d, found none", f.name, i)
		}
		if int64(d) > maxBytes/total {
			return nil, fmt.Errorf("%s: expected at most %d bytes, found a header that announces more", f.name, int64(maxBytes))
		}
		total *= int64(d)
		dims[i] = int(d)
	}
	return dims, nil
}

// body reads as many bytes as dims announce, and nothing may follow. Memory
// grows with what is there, whatever the header says.
func (f *file) body(what string, dims []int) ([]byte, error) {
	want := int64(1)
	for _, d := range dims {
		want *= int64(d)
	}
	var buf bytes.Buffer
	got, err := io.CopyN(&buf, f.r, want)
	if err != nil {
		return nil, f.truncated(err, what, want, got)
	}
	// Reading on also makes gzip compare its checksum.
	switch extra, err := io.CopyN(io.Discard, f.r, 1); {
	case extra > 0:
		return nil, fmt.Errorf("%s: expected %d bytes of %s, found more after them", f.name, want, what)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("%s: truncated: expected gzip's checksum after the %s, found the end", f.name, what)
	case !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("%s: damaged: %w", f.name, err)
	}
	return buf.Bytes(), nil
}

// truncated says why a read of want bytes ended after got of them.
func (f *file) truncated(err error, what string, want, got int64) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s: truncated: expected %d bytes of %s, found %d", f.name, want, what, got)
	}
	return fmt.Errorf("%s: damaged: %w", f.name, err)
}

// whatIs names the files that are confused most often.
func whatIs(magic uint32) string {
	switch {
	case magic == imageMagic:
		return " (an image file)"
	case magic == labelMagic:
		return " (a label file)"
	case magic>>16 == 0x504b:
		return " (a zip archive)"
	default:
		return ""
	}
}

// WriteImages writes m in IDX format.
func WriteImages(w io.Writer, m *Images) error {
	return write(w, m.Pixels, imageMagic, m.N, m.Rows, m.Cols)
}

// WriteLabels writes labels in IDX format.
func WriteLabels(w io.Writer, labels []byte) error {
	return write(w, labels, labelMagic, len(labels))
}

func write(w io.Writer, data []byte, magic uint32, dims ...int) error {
	head := binary.BigEndian.AppendUint32(nil, magic)
	for _, d := range dims {
		head = binary.BigEndian.AppendUint32(head, uint32(d))
	}
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}
