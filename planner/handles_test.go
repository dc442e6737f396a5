package planner_test

import (
	"testing"

	"github.com/cupool/cupool/internal/testkit/handletest"
	"github.com/cupool/cupool/planner"
)

// Methods of what is nil or zero fail.
func TestHandlesOfNothing(t *testing.T) {
	handletest.Receivers(t, (*planner.Planner)(nil), new(planner.Planner))
}
