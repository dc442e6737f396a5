package kernels

// MaxBoxes are the most boxes of a cell.
const MaxBoxes = 16

// YOLOArgs are those of YOLO.
type YOLOArgs struct {
	Dst, A                      uint64
	Stride                      float64
	Sizes                       [2 * MaxBoxes]float64 // width and height of each box, in pixels
	Boxes, Attrs, Rows, Cols, N int64
}
