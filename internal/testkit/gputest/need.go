package gputest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/cudalibs"
)

// missing returns why there is no GPU here, or nil.
var missing = sync.OnceValue(func() error {
	if err := cudadrv.Load(); err != nil {
		return fmt.Errorf("%w: %w", device.ErrNotSupported, err)
	}
	if r := cudadrv.Init(); r != cudadrv.Success {
		return fmt.Errorf("%w: %s", device.ErrNotSupported, r.Name())
	}
	return nil
})

// Need skips a test where there is no GPU, as NoError does.
func Need(t testing.TB) {
	t.Helper()
	NoError(t, missing())
}

// Expected reports whether Need does not skip: there is a GPU, or should be.
func Expected() bool {
	return !errors.Is(missing(), device.ErrNotSupported) || os.Getenv(cudalibs.Driver) != ""
}

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

// Main runs the tests of a package whose Examples use a GPU. Where there is none, they
// are not run.
func Main(m *testing.M) {
	flag.Parse()
	if missing() != nil && flag.Lookup("test.skip").Value.String() == "" {
		_ = flag.Set("test.skip", "^Example")
	}
	os.Exit(m.Run())
}
