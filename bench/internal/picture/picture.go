// Package picture writes gonum's plots to files.
package picture

import (
	"io"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/cupool/cupool/internal/newfile"
)

// Write draws a plot of this size into a file, whole or not at all. The end of its name,
// such as .svg or .png, says what the picture is.
func Write(p *plot.Plot, width, height vg.Length, file string) error {
	picture, err := p.WriterTo(width, height, strings.TrimPrefix(filepath.Ext(file), "."))
	if err != nil {
		return err
	}
	return newfile.Write(file, func(w io.Writer) error {
		_, err := picture.WriteTo(w)
		return err
	})
}
