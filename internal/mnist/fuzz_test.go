package mnist_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/gunzip"
	"github.com/cupool/cupool/internal/mnist"
	"github.com/cupool/cupool/internal/testkit"
	subset "github.com/cupool/cupool/testdata/mnist"
)

// What reading four files may allocate, in bytes: so much, and so much for each
// byte of their contents.
const (
	mostFixed  = 1 << 20 // four files with their buffers
	mostFactor = 8
)

// contents decompresses a file, up to the limit.
func contents(data []byte) []byte {
	r, err := gunzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return data
	}
	out, _ := io.ReadAll(r)
	return out
}

// FuzzLoad: whatever the files hold, loading them fails by an error that names
// one of them, and allocates no more than it may; images and labels that are
// read are those of the files, byte by byte.
func FuzzLoad(f *testing.F) {
	whole := files(f, tiny(3), tiny(3))
	images, labels := whole[mnist.TrainImages], whole[mnist.TrainLabels]
	f.Add(images, labels)
	f.Add(zip(images), zip(labels))
	f.Add(labels, images)
	f.Add(images[:11], labels[:7])
	f.Add(set(images, 4, 0xff), set(labels, 4, 0x7f))
	f.Add(set(set(images, 4, 0xff), 8, 0xff), append(bytes.Clone(labels), 1))
	f.Add(zip(images)[:20], zip(labels)[:len(zip(labels))-3])
	f.Add([]byte("PK\x03\x04"), []byte{0x1f, 0x8b})
	real, err := subset.Files.ReadFile(mnist.TestLabels + ".gz")
	require.NoError(f, err)
	f.Add(images, real)
	f.Fuzz(func(t *testing.T, images, labels []byte) {
		all := map[string][]byte{mnist.TrainImages: images, mnist.TrainLabels: labels, mnist.TestImages: images, mnist.TestLabels: labels}
		plainImages, plainLabels := contents(images), contents(labels)
		var train, test *mnist.Set
		var err error
		testkit.RequireAllocates(t, mostFixed, mostFactor, 2*(len(plainImages)+len(plainLabels)), func() { train, test, err = load(all) })
		_, _, again := load(all)
		if err != nil {
			require.EqualError(t, again, err.Error())
			require.Regexp(t, `^mnist: data/[-a-z0-9]+: `, err.Error())
			require.Less(t, len(err.Error()), 300)
			return
		}
		require.Equal(t, train, test)
		var out bytes.Buffer
		require.NoError(t, mnist.WriteImages(&out, &train.Images))
		require.Equal(t, plainImages, out.Bytes())
		out.Reset()
		require.NoError(t, mnist.WriteLabels(&out, train.Labels))
		require.Equal(t, plainLabels, out.Bytes())
	})
}

// A header that announces much, and a file that grows to much, take no more than
// what is there.
func TestBombs(t *testing.T) {
	header := []byte{0, 0, 8, 3, 0x3f, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 1}
	for name, c := range map[string]struct {
		data []byte
		want string
		is   error
	}{
		"a header alone":                   {header, "truncated: expected 1073741823 bytes of pixels, found 0", nil},
		"more than 64 bits":                {[]byte{0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, "announces more", nil},
		"zeros, announced":                 {zip(append(header, make([]byte, 64<<20)...)), "of gzip grow to more than", gunzip.ErrTooLarge},
		"zeros behind what is read":        {zip(append([]byte{0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1}, make([]byte, 64<<20)...)), "found more after them", nil},
		"a gzip file in it":                {zip(zip(header)), "expected magic number", nil},
		"a header of gzip that never ends": {append([]byte{0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 0}, bytes.Repeat([]byte("x"), 1<<20)...), "damaged gzip header", gzip.ErrHeader},
	} {
		t.Run(name, func(t *testing.T) {
			all := files(t, tiny(4), tiny(4))
			all[mnist.TrainImages] = c.data
			var err error
			testkit.RequireAllocates(t, mostFixed, mostFactor, gunzip.Fixed+gunzip.Factor*len(c.data), func() { _, _, err = load(all) })
			require.ErrorContains(t, err, c.want)
			require.True(t, strings.HasPrefix(err.Error(), "mnist: data/train-images-idx3-ubyte: "))
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}
