// Subset writes the first images of MNIST as a smaller data set, in the same
// format and under the same names. It made testdata/mnist:
//
//	go run ./internal/mnist/subset -from DIR -to testdata/mnist -train 10000 -test 2000
package main

import (
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cupool/cupool/internal/mnist"
	"github.com/cupool/cupool/internal/newfile"
)

func main() {
	from := flag.String("from", "", "directory of the whole data set")
	to := flag.String("to", "testdata/mnist", "directory to write to")
	nTrain := flag.Int("train", 10_000, "training images to take")
	nTest := flag.Int("test", 2_000, "test images to take")
	flag.Parse()
	if err := run(*from, *to, *nTrain, *nTest); err != nil {
		fmt.Fprintln(os.Stderr, "subset:", err)
		os.Exit(1)
	}
}

func run(from, to string, nTrain, nTest int) error {
	train, test, err := mnist.Load(from)
	if err != nil {
		return err
	}
	return errors.Join(
		save(to, mnist.TrainImages, mnist.TrainLabels, train.Take(nTrain)),
		save(to, mnist.TestImages, mnist.TestLabels, test.Take(nTest)))
}

func save(dir, images, labels string, s *mnist.Set) error {
	return errors.Join(
		compress(filepath.Join(dir, images+".gz"), func(w io.Writer) error { return mnist.WriteImages(w, &s.Images) }),
		compress(filepath.Join(dir, labels+".gz"), func(w io.Writer) error { return mnist.WriteLabels(w, s.Labels) }))
}

// compress writes the same bytes for the same data: no name, no time.
func compress(path string, write func(io.Writer) error) error {
	return newfile.Write(path, func(w io.Writer) error {
		zw, err := gzip.NewWriterLevel(w, gzip.BestCompression)
		if err != nil {
			return err
		}
		return errors.Join(write(zw), zw.Close())
	})
}
