package pickle

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// written returns what is read of what f writes.
func written(t *testing.T, f func(*Writer)) any {
	t.Helper()
	var out bytes.Buffer
	w := NewWriter(&out)
	f(w)
	require.NoError(t, w.Close())
	require.Equal(t, "\x80\x02", out.String()[:2])
	v, _, err := Read(&out, "a", "b")
	require.NoError(t, err)
	return v
}

func TestWriteNumbers(t *testing.T) {
	for shift := range 64 {
		for _, n := range []int64{1<<shift - 1, 1 << shift, 1<<shift + 1} {
			require.Equal(t, n, written(t, func(w *Writer) { w.Int(n) }))
			require.Equal(t, -n, written(t, func(w *Writer) { w.Int(-n) }))
		}
	}
	for _, f := range []float64{0, 1.5, -math.MaxFloat64, math.Inf(1)} {
		require.Equal(t, f, written(t, func(w *Writer) { w.Float(f) }))
	}
	for _, b := range []bool{false, true} {
		require.Equal(t, b, written(t, func(w *Writer) { w.Bool(b) }))
	}
	require.Equal(t, Tuple{int64(1), int64(1 << 40)}, written(t, func(w *Writer) { w.Tuple(1, 1<<40) }))
}

func TestWriteStrings(t *testing.T) {
	for _, s := range []string{"", "a", "äöü", strings.Repeat("long", 1000)} {
		require.Equal(t, s, written(t, func(w *Writer) { w.String(s) }))
	}
	require.Equal(t, "\uFFFDa", written(t, func(w *Writer) { w.String("\xffa") }), "Python takes nothing else")
}

// A value that is there again is a reference to the first, whatever its number.
func TestWriteShared(t *testing.T) {
	v := written(t, func(w *Writer) {
		w.List(600, func(i int) {
			w.Shared(i%300, func() { w.List(1, func(int) { w.Int(int64(i % 300)) }) })
		})
	}).(*List)
	require.Len(t, v.Items, 600)
	for i, item := range v.Items {
		require.Equal(t, &List{[]any{int64(i % 300)}}, item)
		require.Same(t, v.Items[i%300], item)
	}
}

func TestWriteContainers(t *testing.T) {
	for _, n := range []int{0, 1, batch - 1, batch, batch + 1, 3 * batch} {
		v := written(t, func(w *Writer) { w.List(n, func(i int) { w.Int(int64(i)) }) }).(*List)
		require.Len(t, v.Items, n)
		for i, item := range v.Items {
			require.EqualValues(t, i, item)
		}
	}
	require.Equal(t, &Dict{}, written(t, func(w *Writer) { w.Dict(func() {}) }))
	require.Equal(t, &Dict{[]pair{{"a", int64(1)}, {"b", &Dict{}}}}, written(t, func(w *Writer) {
		w.Dict(func() {
			w.String("a")
			w.Int(1)
			w.String("b")
			w.Dict(func() {})
		})
	}))
}

type full struct{}

var errFull = errors.New("no space")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteFails(t *testing.T) {
	w := NewWriter(full{})
	w.String(strings.Repeat("x", 1<<16))
	w.Int(1)
	require.ErrorIs(t, w.Close(), errFull)
}
