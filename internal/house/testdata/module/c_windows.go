package cupool
