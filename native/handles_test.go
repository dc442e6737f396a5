package native_test

import (
	"testing"

	"github.com/cupool/cupool/internal/testkit/handletest"
	"github.com/cupool/cupool/native"
)

// Methods of what is nil or zero fail.
func TestHandlesOfNothing(t *testing.T) {
	handletest.Receivers(t, (*native.Allocator)(nil), new(native.Allocator))
}
