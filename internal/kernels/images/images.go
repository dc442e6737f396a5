// Package images has the code of the kernels, as internal/kernels/build.sh
// compiles it. It is a package of its own so that only a program that computes
// carries the code: nothing but what makes an engine may refer to it.
package images

import (
	"archive/zip"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"

	"github.com/cupool/cupool/internal/kernels"
)

//go:embed images.zip
var archive string

// Of is the kernels.Images of this package. Machine code also runs on later
// architectures of the same major number.
func Of(m kernels.Module, major, minor int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		files, err := zip.NewReader(strings.NewReader(archive), int64(len(archive)))
		if err != nil {
			yield(nil, fmt.Errorf("cupool: the archive of the kernels: %w", err))
			return
		}
		for ; minor >= 0; minor-- {
			sass, err := read(files, fmt.Sprintf("%s.sm_%d%d", m, major, minor))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if !yield(sass, err) {
				return
			}
			break
		}
		ptx, err := read(files, m.String()+".ptx")
		yield(append(ptx, 0), err)
	}
}

func read(files *zip.Reader, name string) ([]byte, error) {
	image, err := fs.ReadFile(files, name)
	if err != nil {
		return nil, fmt.Errorf("cupool: the archive of the kernels: %w", err)
	}
	return image, nil
}
