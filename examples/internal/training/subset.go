package training

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/cupool/cupool/internal/mnist"
	subset "github.com/cupool/cupool/testdata/mnist"
)

// WriteSubset writes a part of the built-in data set to a directory, for tests.
func WriteSubset(dir string, nTrain, nTest int) error {
	train, test, err := mnist.LoadFS(subset.Files, "subset")
	if err != nil {
		return err
	}
	train, test = train.Take(nTrain), test.Take(nTest)
	for name, write := range map[string]func(*os.File) error{
		mnist.TrainImages: func(f *os.File) error { return mnist.WriteImages(f, &train.Images) },
		mnist.TrainLabels: func(f *os.File) error { return mnist.WriteLabels(f, train.Labels) },
		mnist.TestImages:  func(f *os.File) error { return mnist.WriteImages(f, &test.Images) },
		mnist.TestLabels:  func(f *os.File) error { return mnist.WriteLabels(f, test.Labels) },
	} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := errors.Join(write(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
