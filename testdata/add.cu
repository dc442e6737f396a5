// Adds to n numbers. testdata/add.ptx is made of it:
//
//	nvcc -ptx -arch=compute_75 add.cu    # and .version 7.0 in place of 9.0, for older drivers
extern "C" __global__ void add(unsigned *p, unsigned long long n, unsigned value) {
	for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
		p[i] += value;
}
