package cublas

import "errors"

// ErrMissing: there is no cuBLAS that could be used.
var ErrMissing = errors.New("cuBLAS is missing")

// ErrSize: a size is beyond what cuBLAS takes, 2³¹-1.
var ErrSize = errors.New("too large for cuBLAS")

// A Matrix is Rows times Cols elements at P, rows Stride elements apart. With
// Transposed it is the transpose of what lies there, which has Cols rows.
type Matrix struct {
	P          uintptr
	Rows, Cols int64
	Stride     int64 // between rows as they lie in memory; at least their length
	Transposed bool
	Next       int64 // elements from one matrix of a batch to the next
}

// A Product is C = Alpha A·B + Beta C, Batch times. C is not transposed.
type Product struct {
	A, B, C     Matrix
	Alpha, Beta float64
	Batch       int64 // 0: 1
	Double      bool  // elements are float64; else float32
	TF32        bool  // float32 may be rounded to TF32
	Workspace   uintptr
	Size        int64 // of the workspace, in bytes
}
