package fakecuda_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/clib"
	"github.com/cupool/cupool/internal/cudalibs"
	"github.com/cupool/cupool/internal/fakecuda"
)

// TestControl makes calls fail and counts them, without the packages over the library.
func TestControl(t *testing.T) {
	path, _, err := build(t)
	require.NoError(t, err)
	t.Setenv(cudalibs.Driver, path[:len(path)-1])
	require.True(t, fakecuda.Loaded())
	t.Cleanup(fakecuda.Reset)

	l, err := clib.Open(path[:len(path)-1])
	require.NoError(t, err)
	start := func() int { return int(int32(clib.Call(l.Find("cuInit"), 0))) }
	fakecuda.Count(true)
	fakecuda.Fail("cuInit", 2, 100, 1)
	assert.Equal(t, []int{0, 100, 0}, []int{start(), start(), start()})
	assert.Equal(t, 3, fakecuda.Calls("cuInit"))
	assert.Zero(t, fakecuda.Calls("cuDeviceGet"))
	fakecuda.Fail("cuInit", 1, 100, 1)
	fakecuda.Reset()
	assert.Zero(t, start())
	assert.Zero(t, fakecuda.Calls("cuInit"))

	free, total, err := fakecuda.HostMemory()
	require.NoError(t, err)
	assert.Equal(t, total, free)
	assert.Positive(t, total)
}
