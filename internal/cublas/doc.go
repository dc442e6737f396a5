// Package cublas is the module's own binding of the part of cuBLAS that
// products of tensors need. gorgonia.org/cu/blas can set neither the stream
// nor the workspace of its handle. The library is opened when the first handle is
// made, so that programs which only allocate do not need it.
package cublas
