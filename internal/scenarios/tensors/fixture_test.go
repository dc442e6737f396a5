package tensors_test

import (
	"github.com/cupool/cupool/internal/testkit/enginetest"
)

type bench = enginetest.Bench

var (
	both = enginetest.Both
	view = enginetest.View
)
