package layers

import "math"

// Boxes is the last layer of YOLOv3. x is of batch × (anchors·attrs) × rows × cols,
// and y of batch × (rows·cols·anchors) × attrs.
func Boxes[T Float](y, x []T, anchors [][2]float64, attrs, rows, cols int, stride float64) {
	cells, boxes := rows*cols, len(anchors)
	for i := range y {
		attr, box, cell, sample := i%attrs, i/attrs%boxes, i/attrs/boxes%cells, i/attrs/boxes/cells
		v := float64(x[((sample*boxes+box)*attrs+attr)*cells+cell])
		sigmoid := T(1 / (1 + math.Exp(-v)))
		switch attr {
		case 0:
			y[i] = (sigmoid + T(cell%cols)) * T(stride)
		case 1:
			y[i] = (sigmoid + T(cell/cols)) * T(stride)
		case 2, 3:
			y[i] = T(math.Exp(v)) * (T(anchors[box][attr-2]) / T(stride)) * T(stride)
		default:
			y[i] = sigmoid
		}
	}
}
