package cuda_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
)

// Without a driver, each function says what is missing.
func TestWithoutDriver(t *testing.T) {
	_, err := cuda.Version()
	if err == nil {
		t.Skip("there is a driver here")
	}
	d, openErr := cuda.Open(0)
	require.Nil(t, d)
	c, contextErr := cuda.OpenContext(0, cuda.Pinned())
	require.Nil(t, c)
	gpus, devicesErr := cuda.Devices()
	require.Empty(t, gpus)
	for _, err := range []error{err, openErr, contextErr, devicesErr} {
		require.ErrorIs(t, err, cupool.ErrNotSupported)
		require.ErrorContains(t, err, "no NVIDIA driver")
		var failed *cuda.Error
		require.False(t, errors.As(err, &failed))
	}
}
