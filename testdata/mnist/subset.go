// Package mnist holds a part of the MNIST data set of handwritten digits
// (Y. LeCun, C. Cortes, C. J. C. Burges): the first 10,000 training and the
// first 2,000 test images, in the original format and order.
// internal/mnist/subset wrote the files and internal/mnist reads them.
package mnist

import "embed"

// Files are the four files of the data set.
//
//go:embed *.gz
var Files embed.FS
