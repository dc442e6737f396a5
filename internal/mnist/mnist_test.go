package mnist_test

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/mnist"
	subset "github.com/cupool/cupool/testdata/mnist"
)

// tiny is n images of 2 × 3 pixels with labels.
func tiny(n int) *mnist.Set {
	s := &mnist.Set{Images: mnist.Images{N: n, Rows: 2, Cols: 3}}
	for i := range n {
		for p := range 6 {
			s.Pixels = append(s.Pixels, byte(10*i+p))
		}
		s.Labels = append(s.Labels, byte(i%mnist.Classes))
	}
	return s
}

// files is a data set.
func files(t testing.TB, train, test *mnist.Set) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for names, set := range map[[2]string]*mnist.Set{{mnist.TrainImages, mnist.TrainLabels}: train, {mnist.TestImages, mnist.TestLabels}: test} {
		var images, labels bytes.Buffer
		require.NoError(t, mnist.WriteImages(&images, &set.Images))
		require.NoError(t, mnist.WriteLabels(&labels, set.Labels))
		out[names[0]], out[names[1]] = images.Bytes(), labels.Bytes()
	}
	return out
}

func zip(data []byte) []byte {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	w.Write(data)
	w.Close()
	return buf.Bytes()
}

func load(files map[string][]byte) (train, test *mnist.Set, err error) {
	fsys := fstest.MapFS{}
	for name, data := range files {
		fsys[name] = &fstest.MapFile{Data: data}
	}
	return mnist.LoadFS(fsys, "data")
}

func TestLoad(t *testing.T) {
	for name, change := range map[string]func(map[string][]byte){
		"plain": func(map[string][]byte) {},
		"gzip": func(f map[string][]byte) {
			for _, n := range []string{mnist.TrainImages, mnist.TrainLabels, mnist.TestImages, mnist.TestLabels} {
				f[n+".gz"] = zip(f[n])
				delete(f, n)
			}
		},
		"gzip under the plain name": func(f map[string][]byte) { f[mnist.TestImages] = zip(f[mnist.TestImages]) },
		"plain under the gzip name": func(f map[string][]byte) {
			f[mnist.TestImages+".gz"] = f[mnist.TestImages]
			delete(f, mnist.TestImages)
		},
		"both names, the plain one wins": func(f map[string][]byte) { f[mnist.TestImages+".gz"] = []byte("nonsense") },
	} {
		t.Run(name, func(t *testing.T) {
			f := files(t, tiny(4), tiny(2))
			change(f)
			train, test, err := load(f)
			require.NoError(t, err)
			require.Equal(t, tiny(4), train)
			require.Equal(t, tiny(2), test)
			require.Equal(t, 6, train.Size())
			require.Equal(t, []byte{20, 21, 22, 23, 24, 25}, train.Image(2))
		})
	}
}

// set returns data with its i-th byte replaced.
func set(data []byte, i int, b byte) []byte {
	data = bytes.Clone(data)
	data[i] = b
	return data
}

func TestLoadRejects(t *testing.T) {
	images, labels := mnist.TrainImages, mnist.TrainLabels
	for name, c := range map[string]struct {
		file   string
		change func([]byte) []byte // nil: remove the file
		want   string
	}{
		"missing images":      {images, nil, "data/train-images-idx3-ubyte: no such file, nor train-images-idx3-ubyte.gz"},
		"missing test labels": {mnist.TestLabels, nil, "data/t10k-labels-idx1-ubyte: no such file, nor t10k-labels-idx1-ubyte.gz"},
		"labels as images": {images, func(b []byte) []byte { return set(b, 3, 1) },
			"train-images-idx3-ubyte: not an IDX image file: expected magic number 0x00000803, found 0x00000801 (a label file)"},
		"images as labels": {labels, func(b []byte) []byte { return set(b, 3, 3) },
			"expected magic number 0x00000801, found 0x00000803 (an image file)"},
		"zip archive": {images, func([]byte) []byte { return []byte("PK\x03\x04 and so on") },
			"expected magic number 0x00000803, found 0x504b0304 (a zip archive)"},
		"text":            {images, func([]byte) []byte { return []byte("<html>not here</html>") }, "found 0x3c68746d"},
		"empty":           {images, func([]byte) []byte { return nil }, "truncated: expected 16 bytes of header, found 0"},
		"short header":    {images, func(b []byte) []byte { return b[:11] }, "truncated: expected 16 bytes of header, found 11"},
		"short pixels":    {images, func(b []byte) []byte { return b[:30] }, "truncated: expected 24 bytes of pixels, found 14"},
		"short labels":    {labels, func(b []byte) []byte { return b[:10] }, "truncated: expected 4 bytes of labels, found 2"},
		"trailing pixels": {images, func(b []byte) []byte { return append(b, 1, 2) }, "expected 24 bytes of pixels, found more after them"},
		"trailing labels": {labels, func(b []byte) []byte { return append(b, 1) }, "expected 4 bytes of labels, found more after them"},
		"no images":       {images, func(b []byte) []byte { return set(b, 7, 0) }, "expected at least one element in dimension 0, found none"},
		"no rows":         {images, func(b []byte) []byte { return set(b, 11, 0) }, "dimension 1, found none"},
		"absurd size":     {images, func(b []byte) []byte { return set(set(b, 4, 0xff), 8, 0xff) }, "found a header that announces more"},
		"lying header":    {images, func(b []byte) []byte { return set(b, 4, 0x04) }, "truncated: expected 402653208 bytes of pixels, found 24"},
		"label out of range": {labels, func(b []byte) []byte { return set(b, 10, 10) },
			"train-labels-idx1-ubyte: expected labels from 0 to 9, found 10 as the label of image 2"},
		"fewer labels than images": {labels, func(b []byte) []byte { return set(b, 7, 3)[:11] },
			"train-labels-idx1-ubyte: expected 4 labels, one for each image of train-images-idx3-ubyte, found 3"},
		"other size of test images": {mnist.TestImages, func(b []byte) []byte { return set(set(b, 11, 3), 15, 2) },
			"training images of 2 × 3 pixels, but test images of 3 × 2, in data"},
		"damaged gzip header": {images, func(b []byte) []byte { return zip(b)[:5] }, "damaged gzip header"},
		"truncated gzip":      {images, func(b []byte) []byte { z := zip(b); return z[:len(z)-20] }, "truncated: expected 24 bytes of pixels, found"},
		"gzip without its checksum": {images, func(b []byte) []byte { z := zip(b); return z[:len(z)-3] },
			"truncated: expected gzip's checksum after the pixels, found the end"},
		"gzip checksum": {images, func(b []byte) []byte { z := zip(b); return set(z, len(z)-6, z[len(z)-6]+1) }, "damaged: gzip: invalid checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			f := files(t, tiny(4), tiny(2))
			if c.change == nil {
				delete(f, c.file)
			} else {
				f[c.file] = c.change(f[c.file])
			}
			_, _, err := load(f)
			require.ErrorContains(t, err, c.want)
			require.True(t, strings.HasPrefix(err.Error(), "mnist: "))
		})
	}
}

func TestLoadDirectory(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "nowhere")
	_, _, err := mnist.Load(missing)
	require.ErrorContains(t, err, "there is no directory "+missing)
	for name, data := range files(t, tiny(4), tiny(2)) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o666))
	}
	_, _, err = mnist.Load(dir)
	require.NoError(t, err)
	file := filepath.Join(dir, mnist.TrainImages)
	_, _, err = mnist.Load(file)
	require.ErrorContains(t, err, file+" is not a directory")
	require.NoError(t, os.Remove(file)) // a link to what has no end, or no beginning
	require.NoError(t, os.Symlink(os.DevNull, file))
	_, _, err = mnist.Load(dir)
	require.ErrorContains(t, err, file+": expected a file, found D")
}

func TestTake(t *testing.T) {
	require.Equal(t, tiny(3), tiny(4).Take(3))
	require.Equal(t, tiny(4), tiny(4).Take(9))
}

// The committed subset is MNIST's beginning: the first labels are well known.
func TestSubset(t *testing.T) {
	train, test, err := mnist.LoadFS(subset.Files, "testdata/mnist")
	require.NoError(t, err)
	require.Equal(t, []int{10_000, 2_000, 28, 28}, []int{train.N, test.N, train.Rows, train.Cols})
	require.Equal(t, []byte{5, 0, 4, 1, 9, 2, 1, 3, 1, 4}, train.Labels[:10])
	require.Equal(t, []byte{7, 2, 1, 0, 4, 1, 4, 9, 5, 9}, test.Labels[:10])
}
