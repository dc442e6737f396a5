module github.com/cupool/cupool

go 1.26.0
