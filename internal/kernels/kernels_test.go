package kernels

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOfSize(t *testing.T) {
	for size, want := range map[uintptr]string{1: "copy_1", 2: "copy_2", 4: "copy_4", 8: "copy_8"} {
		k, ok := Copy.OfSize(size)
		require.True(t, ok)
		require.Equal(t, want, k.Name())
	}
	_, ok := Copy.OfSize(16)
	require.False(t, ok)
	require.Equal(t, "adam_f64", Adam.Of(true).Name())
	require.Equal(t, "random_f32", Random.Of(false).Name())
}
