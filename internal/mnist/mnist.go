// Package mnist reads and writes the MNIST data set of handwritten digits in
// its original format, IDX: big-endian, a magic number that gives the type
// and the number of dimensions, the size of each dimension, then the bytes.
//
// A data set is four files, each plain or compressed by gzip, which the
// first two bytes tell:
//
//	train-images-idx3-ubyte  train-labels-idx1-ubyte
//	t10k-images-idx3-ubyte   t10k-labels-idx1-ubyte
//
// Every error names the file, what was expected and what was found.
//
// A file may be a stranger's: reading it allocates at most 64 KiB and 8 bytes for
// each byte of its contents, of which it may have 1 GiB. What gzip compressed may
// grow to 16 MiB and 128 bytes for each byte of the file; more is an error that
// wraps gunzip.ErrTooLarge.
package mnist

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Classes is the number of digits.
const Classes = 10

// The original names of the four files, without ".gz".
const (
	TrainImages = "train-images-idx3-ubyte"
	TrainLabels = "train-labels-idx1-ubyte"
	TestImages  = "t10k-images-idx3-ubyte"
	TestLabels  = "t10k-labels-idx1-ubyte"
)

// A Set is images with their labels.
type Set struct {
	Images
	Labels []byte // 0 to 9, one for each image
}

// Images is N pictures of Rows × Cols pixels, 0 (paper) to 255 (ink).
type Images struct {
	N, Rows, Cols int
	Pixels        []byte // row by row, picture by picture
}

// Size is the number of pixels of one picture.
func (m *Images) Size() int { return m.Rows * m.Cols }

// Image is the i-th picture.
func (m *Images) Image(i int) []byte {
	return m.Pixels[i*m.Size() : (i+1)*m.Size()]
}

// Take is the first n samples, or all of them where there are fewer. It
// shares s's memory.
func (s *Set) Take(n int) *Set {
	n = min(n, s.N)
	head := *s
	head.N, head.Pixels, head.Labels = n, s.Pixels[:n*s.Size()], s.Labels[:n]
	return &head
}

// Load reads the training and the test set from the directory dir.
func Load(dir string) (train, test *Set, err error) {
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil, fmt.Errorf("mnist: there is no directory %s", dir)
	case err != nil:
		return nil, nil, fmt.Errorf("mnist: %w", err)
	case !info.IsDir():
		return nil, nil, fmt.Errorf("mnist: %s is not a directory", dir)
	}
	return LoadFS(os.DirFS(dir), dir)
}

// LoadFS reads the training and the test set from the root of fsys, which
// errors call dir.
func LoadFS(fsys fs.FS, dir string) (train, test *Set, err error) {
	d := source{fsys, dir}
	if train, err = d.set(TrainImages, TrainLabels); err != nil {
		return nil, nil, fmt.Errorf("mnist: %w", err)
	}
	if test, err = d.set(TestImages, TestLabels); err != nil {
		return nil, nil, fmt.Errorf("mnist: %w", err)
	}
	if train.Rows != test.Rows || train.Cols != test.Cols {
		return nil, nil, fmt.Errorf("mnist: training images of %d × %d pixels, but test images of %d × %d, in %s",
			train.Rows, train.Cols, test.Rows, test.Cols, dir)
	}
	return train, test, nil
}

// A source is a directory of IDX files.
type source struct {
	fsys fs.FS
	dir  string // fsys's name in errors
}

// set reads an image file and the label file that belongs to it.
func (d source) set(images, labels string) (*Set, error) {
	var s Set
	err := d.open(images, func(f *file) (err error) {
		s.Images, err = f.images()
		return err
	})
	if err != nil {
		return nil, err
	}
	err = d.open(labels, func(f *file) (err error) {
		s.Labels, err = f.labels()
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(s.Labels) != s.N {
		return nil, fmt.Errorf("%s: expected %d labels, one for each image of %s, found %d",
			d.path(labels), s.N, images, len(s.Labels))
	}
	return &s, nil
}

// open calls read with the file name or, where there is none, name + ".gz".
func (d source) open(name string, read func(*file) error) error {
	for _, n := range []string{name, name + ".gz"} {
		f, err := d.regular(n)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.path(n), err)
		}
		defer f.Close()
		idx, err := newFile(d.path(n), f)
		if err != nil {
			return err
		}
		return read(idx)
	}
	return fmt.Errorf("%s: no such file, nor %s.gz", d.path(name), name)
}

// regular opens a file that has an end: a stranger's data set may have a link to a device, or
// a pipe that nobody writes to.
func (d source) regular(name string) (fs.File, error) {
	info, err := fs.Stat(d.fsys, name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("expected a file, found %v", info.Mode())
	}
	return d.fsys.Open(name)
}

func (d source) path(name string) string { return filepath.Join(d.dir, name) }
