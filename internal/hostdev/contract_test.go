package hostdev_test

import (
	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/hostdev"
)

var _ cupool.Driver = (*hostdev.Device)(nil)
