package operand

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestIsPlain(t *testing.T) {
	for _, v := range []any{true, 1, uint8(1), 1.5, complex64(1), [3]int32{}, struct {
		a int8
		b [2]float64
	}{}, struct{}{}} {
		require.True(t, IsPlain(reflect.TypeOf(v)), "%T", v)
	}
	for _, v := range []any{"", []int{}, map[int]int{}, new(int), uintptr(0), [2]string{}, struct{ p *int }{}, func() {}} {
		require.False(t, IsPlain(reflect.TypeOf(v)), "%T", v)
	}
}

func TestPlainBytes(t *testing.T) {
	s := []uint16{0, 0}
	b := PlainBytes(s)
	require.Len(t, b, 4)
	b[0], b[1] = 0xff, 0xff
	require.Equal(t, []uint16{0xffff, 0}, s, "it is the same memory")
	require.Empty(t, PlainBytes([]struct{}{{}, {}}))
	require.EqualValues(t, 12, PlainSize[[3]float32]())
}

func TestPattern(t *testing.T) {
	require.Equal(t, []byte{7}, pattern(reflect.ValueOf(uint8(7))))
	require.Equal(t, []byte{1, 1, 0, 0}, pattern(reflect.ValueOf([4]bool{true, true})))
}
