package cupool

func init() { A() }
