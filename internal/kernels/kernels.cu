// All kernels, in the order in which they use each other's functions.

#include "elementwise.cu"
#include "copy.cu"
#include "reduce.cu"
#include "softmax.cu"
#include "layer.cu"
#include "activate.cu"
#include "linear.cu"
#include "conv.cu"
#include "matmul.cu"
#include "optimizer.cu"
#include "random.cu"
#include "pool.cu"
