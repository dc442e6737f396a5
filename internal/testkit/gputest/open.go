package gputest

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudalibs"
)

// NoError checks the error of opening a GPU. It skips the test where there is no
// driver or no GPU, unless CUPOOL_LIBCUDA says that there is one, and fails it
// with any other error.
func NoError(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, device.ErrNotSupported) && os.Getenv(cudalibs.Driver) == "" {
		t.Skipf("%v\nOn the stand-in: export %s=$(internal/fakecuda/build.sh)", err, cudalibs.Driver)
	}
	require.NoError(t, err)
}
