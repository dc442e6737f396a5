// The kernels of the module kernels. Those of linear.cu and conv.cu are modules of
// their own, as they take long to compile.

#include "elementwise.cu"
#include "copy.cu"
#include "reduce.cu"
#include "softmax.cu"
#include "ctc.cu"
#include "yolo.cu"
#include "layer.cu"
#include "activate.cu"
#include "fused.cu"
#include "matmul.cu"
#include "optimizer.cu"
#include "random.cu"
#include "pool.cu"
#include "norm.cu"
