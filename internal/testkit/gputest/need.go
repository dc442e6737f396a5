package gputest

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
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

// Main runs the tests of a package whose Examples use a GPU. Where there is none, they
// are not run.
func Main(m *testing.M) {
	flag.Parse()
	if missing() != nil && flag.Lookup("test.skip").Value.String() == "" {
		_ = flag.Set("test.skip", "^Example")
	}
	os.Exit(m.Run())
}
