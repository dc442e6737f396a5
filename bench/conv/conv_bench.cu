// Times the kernels of internal/kernels/conv.cu, every tile of them, over the
// convolutions of a small convolutional and a small residual network, and checks
// each result. Beside them: im2col with cuBLAS, and cuDNN's fastest algorithm with
// full precision where there is cuDNN. See run.sh.

#ifdef ON_CPU
#include "../../internal/fakecuda/libcuda/emulate.cc"
#include "conv.cu"
#include "cuda_shim.h"
#define KERNEL_OF(name) ((const void *)&emulated_##name)
#else
#include "conv.cu"
#include <cublas_v2.h>
#include <cuda_runtime.h>
#define KERNEL_OF(name) ((const void *)name)
#endif
#ifdef HAVE_CUDNN
#include <cudnn.h>
#endif

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#define CHECK(call)                                                                          \
	do {                                                                                 \
		auto status = (call);                                                        \
		if ((int)status != 0) {                                                      \
			printf("%s:%d: %s: status %d\n", __FILE__, __LINE__, #call, (int)status); \
			exit(1);                                                             \
		}                                                                            \
	} while (0)

struct Shape {
	const char *name;
	int n, c, h, w, o, kh, kw, ph, pw, sh, sw, dh, dw;
	int oh() const { return (h + 2 * ph - (dh * (kh - 1) + 1)) / sh + 1; }
	int ow() const { return (w + 2 * pw - (dw * (kw - 1) + 1)) / sw + 1; }
	size_t x() const { return (size_t)n * c * h * w; }
	size_t y() const { return (size_t)n * o * oh() * ow(); }
	int taps() const { return c * kh * kw; }
	size_t weights() const { return (size_t)o * taps(); }
};

static const Shape shapes[] = {
	{"convnet 1>32 28", 50, 1, 28, 28, 32, 3, 3, 1, 1, 1, 1, 1, 1},
	{"convnet 32>64 14", 50, 32, 14, 14, 64, 3, 3, 1, 1, 1, 1, 1, 1},
	{"convnet 64>128 7", 50, 64, 7, 7, 128, 3, 3, 1, 1, 1, 1, 1, 1},
	{"convnet128 32>64", 128, 32, 14, 14, 64, 3, 3, 1, 1, 1, 1, 1, 1},
	{"convnet128 64>128", 128, 64, 7, 7, 128, 3, 3, 1, 1, 1, 1, 1, 1},
	{"resnet 1>16 28", 64, 1, 28, 28, 16, 3, 3, 1, 1, 1, 1, 1, 1},
	{"resnet 16>16 28", 64, 16, 28, 28, 16, 3, 3, 1, 1, 1, 1, 1, 1},
	{"resnet 16>32 28/2", 64, 16, 28, 28, 32, 3, 3, 1, 1, 2, 2, 1, 1},
	{"resnet 16>32 1x1/2", 64, 16, 28, 28, 32, 1, 1, 0, 0, 2, 2, 1, 1},
	{"resnet 32>32 14", 64, 32, 14, 14, 32, 3, 3, 1, 1, 1, 1, 1, 1},
	{"resnet 32>64 14/2", 64, 32, 14, 14, 64, 3, 3, 1, 1, 2, 2, 1, 1},
	{"resnet 32>64 1x1/2", 64, 32, 14, 14, 64, 1, 1, 0, 0, 2, 2, 1, 1},
	{"resnet 64>64 7", 64, 64, 7, 7, 64, 3, 3, 1, 1, 1, 1, 1, 1},
	{"odd 3>20 5x5", 16, 3, 32, 30, 20, 5, 5, 0, 0, 1, 1, 1, 1},
	{"odd 7>33 dil 2", 5, 7, 19, 23, 33, 3, 3, 2, 2, 1, 1, 2, 2},
	{"odd 5>9 /3,2 dil 2,3", 4, 5, 25, 22, 9, 3, 2, 3, 1, 3, 2, 2, 3},
	{"odd 64>64 1x1", 32, 64, 28, 28, 64, 1, 1, 0, 0, 1, 1, 1, 1},
};

static const Shape small_shapes[] = { // for the emulation
	{"1>16", 3, 1, 12, 12, 16, 3, 3, 1, 1, 1, 1, 1, 1},
	{"8>20 7", 3, 8, 7, 7, 20, 3, 3, 1, 1, 1, 1, 1, 1},
	{"8>20 /2", 3, 8, 8, 8, 20, 3, 3, 1, 1, 2, 2, 1, 1},
	{"8>20 1x1/2", 3, 8, 9, 8, 20, 1, 1, 0, 0, 2, 2, 1, 1},
	{"7>33 dil 2", 2, 7, 9, 11, 33, 3, 3, 2, 2, 1, 1, 2, 2},
	{"5>9 /3,2 dil 2,3", 2, 5, 15, 12, 9, 3, 2, 3, 1, 3, 2, 2, 3},
	{"5>9 /4 dil 6", 2, 5, 15, 12, 9, 2, 2, 1, 1, 4, 4, 6, 6},
};

struct BlockTile {
	int rows, cols, threads;
};

template <typename T> struct BlockTiles;
template <> struct BlockTiles<float> {
	static std::vector<BlockTile> conv() {
		return {{16, 128, 128}, {32, 32, 64}, {32, 64, 128}, {32, 128, 128}, {64, 32, 128}, {64, 64, 256}, {64, 64, 256}};
	}
	static std::vector<BlockTile> weights() {
		return {{32, 16, 128}, {16, 64, 128}, {32, 32, 128}, {32, 64, 256}, {64, 64, 256}};
	}
	static const void *kernel(int i) {
		const void *all[] = {KERNEL_OF(conv_f32), KERNEL_OF(conv_weights_f32), KERNEL_OF(conv_sum_f32), KERNEL_OF(im2col_f32), KERNEL_OF(col2im_f32), KERNEL_OF(conv_finish_f32)};
		return all[i];
	}
};
template <> struct BlockTiles<double> {
	static std::vector<BlockTile> conv() { return {{16, 128, 128}, {32, 32, 64}, {32, 64, 128}, {64, 64, 256}}; }
	static std::vector<BlockTile> weights() { return {{32, 16, 128}, {16, 64, 64}, {32, 32, 64}, {32, 64, 128}, {64, 64, 256}}; }
	static const void *kernel(int i) {
		const void *all[] = {KERNEL_OF(conv_f64), KERNEL_OF(conv_weights_f64), KERNEL_OF(conv_sum_f64), KERNEL_OF(im2col_f64), KERNEL_OF(col2im_f64), KERNEL_OF(conv_finish_f64)};
		return all[i];
	}
};
enum { CONV, CONV_WEIGHTS, CONV_SUM, IM2COL, COL2IM, CONV_FINISH };

static cudaStream_t stream;

template <typename A> static void launch(const void *kernel, int x, int y, int threads, A &args) {
	void *params[] = {&args};
	CHECK(cudaLaunchKernel(kernel, dim3(x, y, 1), dim3(threads, 1, 1), params, 0, stream));
}

static int over(long long a, long long b) { return (int)((a + b - 1) / b); }

// launch_conv launches all parts of a gather.
template <typename T> static int launch_conv(ConvProduct a, const std::vector<ConvPart> &parts, int tile, int splits, T *scratch) {
	ConvFinishArgs f = {a.dst, (u64)scratch, a.bias, a.y, a.activation, a.batch * a.rows * a.dst_plane, splits, a.rows, a.dst_plane};
	a.splits = splits, a.size = f.n, a.tile = tile;
	if (splits > 1)
		a.dst = f.sums, a.bias = a.y = 0, a.activation = 0;
	BlockTile t = BlockTiles<T>::conv()[tile];
	int blocks = 0;
	for (size_t first = 0; first < parts.size(); first += CONV_PARTS) {
		ConvArgs args = {a, {}};
		int n = (int)std::min<size_t>(CONV_PARTS, parts.size() - first), most = 0;
		for (int i = 0; i < n; i++) {
			args.part[i] = parts[first + i];
			int mine = over(a.rows, t.rows) * over(a.batch * args.part[i].high * args.part[i].wide, t.cols);
			most = std::max(most, mine);
			blocks += mine;
		}
		launch(BlockTiles<T>::kernel(CONV), most * splits, n, t.threads, args);
	}
	if (splits > 1)
		launch(BlockTiles<T>::kernel(CONV_FINISH), std::min(4096, over(f.n, 256)), 1, 256, f);
	return blocks * splits;
}

template <typename T> static int forward(const Shape &s, T *x, T *w, T *bias, T *y, int tile, int splits, T *scratch) {
	ConvProduct a = {};
	a.dst = (u64)y, a.src = (u64)x, a.w = (u64)w, a.bias = (u64)bias;
	a.activation = 1;
	a.batch = s.n, a.rows = s.o, a.channels = s.c, a.height = s.h, a.width = s.w;
	a.mul_y = s.sh, a.mul_x = s.sw, a.step_y = s.dh, a.step_x = s.dw;
	a.w_row = s.taps(), a.w_channel = s.kh * s.kw, a.w_tap_y = s.kw, a.w_tap_x = 1;
	a.dst_plane = s.oh() * s.ow(), a.dst_row = s.ow(), a.dst_column = 1;
	return launch_conv<T>(a, {{s.oh(), s.ow(), s.kh, s.kw, -s.ph, -s.pw, 0, 0}}, tile, splits, scratch);
}

// A Phase is the elements of an axis that are reached by the same taps.
struct Phase {
	int first, n;          // every stride-th from first
	int tap, step, taps;   // every step-th tap from tap
	int at;                // of the first, with the first tap
};

static int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }

static std::vector<Phase> phases(int size, int kernel, int pad, int stride, int dilation) {
	std::vector<Phase> all;
	int step = stride / gcd(stride, dilation);
	for (int first = 0; first < std::min(stride, size); first++) {
		Phase p = {first, over(size - first, stride), 0, step, 0, 0};
		for (int tap = 0; tap < std::min(step, kernel); tap++)
			if ((first + pad - tap * dilation) % stride == 0) {
				p.tap = tap, p.taps = over(kernel - tap, step);
				p.at = (first + pad - tap * dilation) / stride;
				break;
			}
		all.push_back(p);
	}
	return all;
}

template <typename T> static int input_back(const Shape &s, T *dz, T *w, T *x, T *dx, int tile, int splits, T *scratch) {
	ConvProduct a = {};
	a.dst = (u64)dx, a.src = (u64)dz, a.w = (u64)w, a.y = (u64)x;
	a.activation = 1;
	a.batch = s.n, a.rows = s.c, a.channels = s.o, a.height = s.oh(), a.width = s.ow();
	auto ys = phases(s.h, s.kh, s.ph, s.sh, s.dh), xs = phases(s.w, s.kw, s.pw, s.sw, s.dw);
	a.mul_y = a.mul_x = 1;
	a.step_y = -s.dh / gcd(s.sh, s.dh), a.step_x = -s.dw / gcd(s.sw, s.dw);
	a.w_row = s.kh * s.kw, a.w_channel = s.taps(), a.w_tap_y = ys[0].step * s.kw, a.w_tap_x = xs[0].step;
	a.dst_plane = s.h * s.w, a.dst_row = s.sh * s.w, a.dst_column = s.sw;
	std::vector<ConvPart> parts;
	for (auto &v : ys)
		for (auto &h : xs)
			parts.push_back({v.n, h.n, v.taps, h.taps, v.at, h.at, v.tap * s.kw + h.tap, v.first * s.w + h.first});
	return launch_conv<T>(a, parts, tile, splits, scratch);
}

template <typename T> static int weights_back(const Shape &s, T *x, T *dz, T *dw, T *db, T *scratch, size_t room, int tile, int wanted, bool sum_only) {
	BlockTile t = BlockTiles<T>::weights()[tile];
	long long pixels = (long long)s.n * s.oh() * s.ow();
	ConvWeightsArgs a = {};
	a.sums = (u64)scratch, a.x = (u64)x, a.dz = (u64)dz;
	a.batch = s.n, a.rows = s.o, a.channels = s.c, a.height = s.h, a.width = s.w, a.high = s.oh(), a.wide = s.ow();
	a.taps_y = s.kh, a.taps_x = s.kw, a.pad_y = s.ph, a.pad_x = s.pw;
	a.stride_y = s.sh, a.stride_x = s.sw, a.dilation_y = s.dh, a.dilation_x = s.dw;
	a.taps = s.taps(), a.columns = s.taps() + 1, a.tile = tile;
	int tiles = over(a.rows, t.rows) * over(a.columns, t.cols);
	a.span = std::max(32, over(over(pixels, std::max(1, wanted / tiles)), 32) * 32);
	int parts = over(pixels, a.span);
	if (sizeof(T) * parts * a.rows * a.columns > room)
		return 0;
	if (!sum_only)
		launch(BlockTiles<T>::kernel(CONV_WEIGHTS), tiles, parts, t.threads, a);
	ConvSumArgs b = {};
	b.dw = (u64)dw, b.db = (u64)db, b.sums = (u64)scratch;
	b.rows = a.rows, b.taps = a.taps, b.columns = a.columns, b.parts = parts;
	for (b.lanes = 1; b.lanes < 32 && b.lanes * 8 < parts;)
		b.lanes *= 2;
	launch(BlockTiles<T>::kernel(CONV_SUM), over(b.rows * b.columns, CONV_THREADS / b.lanes), 1, CONV_THREADS, b);
	return tiles * parts;
}

template <typename T> static void columns(const Shape &s, T *x, T *col, bool back) {
	Im2ColArgs a = {};
	a.x = (u64)x, a.col = (u64)col;
	a.channels = s.c, a.height = s.h, a.width = s.w, a.high = s.oh(), a.wide = s.ow();
	a.n = back ? (i64)s.x() : (i64)s.n * s.oh() * s.ow() * s.taps();
	a.taps_y = s.kh, a.taps_x = s.kw, a.pad_y = s.ph, a.pad_x = s.pw;
	a.stride_y = s.sh, a.stride_x = s.sw, a.dilation_y = s.dh, a.dilation_x = s.dw;
	launch(BlockTiles<T>::kernel(back ? COL2IM : IM2COL), std::min(4096, over(a.n, 256)), 1, 256, a);
}

// micros returns how long work takes, as one of many in a graph.
static double micros(const std::function<void()> &work) {
#ifdef ON_CPU
	work();
	return 0;
#else
	const int times = 50;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < times; i++)
		work();
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, NULL, NULL, 0));
	cudaEvent_t from, to;
	CHECK(cudaEventCreate(&from));
	CHECK(cudaEventCreate(&to));
	float best = 1e30f;
	for (int i = 0; i < 4; i++) {
		float ms;
		CHECK(cudaEventRecord(from, stream));
		CHECK(cudaGraphLaunch(exec, stream));
		CHECK(cudaEventRecord(to, stream));
		CHECK(cudaStreamSynchronize(stream));
		CHECK(cudaEventElapsedTime(&ms, from, to));
		best = std::min(best, ms);
	}
	cudaEventDestroy(from);
	cudaEventDestroy(to);
	CHECK(cudaGraphExecDestroy(exec));
	CHECK(cudaGraphDestroy(graph));
	return best * 1000 / times;
#endif
}

// A Buffer is an array on the host and on the device.
template <typename T> struct Buffer {
	std::vector<T> host;
	T *p = nullptr;
	explicit Buffer(size_t n) : host(n) { CHECK(cudaMalloc((void **)&p, std::max<size_t>(n, 1) * sizeof(T))); }
	~Buffer() { cudaFree(p); }
	void randomize(std::mt19937 &r) {
		std::uniform_real_distribution<double> d(-1, 1);
		for (auto &v : host)
			v = (T)d(r);
		CHECK(cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
	}
	void poison() { CHECK(cudaMemset(p, 0xff, host.size() * sizeof(T))); }
	void read() {
		CHECK(cudaDeviceSynchronize());
		CHECK(cudaMemcpy(host.data(), p, host.size() * sizeof(T), cudaMemcpyDeviceToHost));
	}
};

static bool failed = false;

template <typename T> static const char *verdict(Buffer<T> &b, const std::vector<double> &want) {
	b.read();
	double diff = 0, norm = 0;
	for (size_t i = 0; i < want.size(); i++) {
		double d = b.host[i] - want[i];
		diff += d * d, norm += want[i] * want[i];
	}
	bool good = sqrt(diff) <= (sizeof(T) == 4 ? 1e-5 : 1e-13) * sqrt(norm);
	failed |= !good;
	return good ? "ok" : "WRONG";
}

// reference computes everything by the definition.
template <typename T> struct Reference {
	std::vector<double> y, dx, dw, db;
	Reference(const Shape &s, const std::vector<T> &x, const std::vector<T> &w, const std::vector<T> &bias, const std::vector<T> &dz)
		: y(s.y()), dx(s.x()), dw(s.weights()), db(s.o) {
		int oh = s.oh(), ow = s.ow();
		for (int n = 0; n < s.n; n++)
			for (int o = 0; o < s.o; o++) {
				size_t at = ((size_t)n * s.o + o) * oh * ow;
				for (int i = 0; i < oh * ow; i++)
					y[at + i] = bias[o], db[o] += dz[at + i];
				for (int c = 0; c < s.c; c++)
					for (int ty = 0; ty < s.kh; ty++)
						for (int tx = 0; tx < s.kw; tx++)
							tap(s, x, w, dz, n, o, c, ty, tx, at);
			}
		for (auto &v : y)
			v = std::max(v, 0.0);
		for (size_t i = 0; i < dx.size(); i++)
			dx[i] = x[i] > 0 ? dx[i] : 0;
	}
	void tap(const Shape &s, const std::vector<T> &x, const std::vector<T> &w, const std::vector<T> &dz, int n, int o, int c, int ty, int tx, size_t at) {
		int oh = s.oh(), ow = s.ow();
		size_t k = (size_t)o * s.taps() + (c * s.kh + ty) * s.kw + tx;
		double weight = w[k], sum = 0;
		for (int i = 0; i < oh; i++) {
			int from = i * s.sh - s.ph + ty * s.dh;
			if (from < 0 || from >= s.h)
				continue;
			size_t line = (((size_t)n * s.c + c) * s.h + from) * s.w;
			for (int j = 0; j < ow; j++) {
				int col = j * s.sw - s.pw + tx * s.dw;
				if (col < 0 || col >= s.w)
					continue;
				double d = dz[at + i * ow + j], v = x[line + col];
				y[at + i * ow + j] += weight * v;
				dx[line + col] += weight * d;
				sum += v * d;
			}
		}
		dw[k] += sum;
	}
};

#ifdef HAVE_CUDNN
// Cudnn times the algorithms of cuDNN, with products of full precision.
struct Cudnn {
	cudnnHandle_t h;
	cudnnTensorDescriptor_t x, y;
	cudnnFilterDescriptor_t w;
	cudnnConvolutionDescriptor_t conv;
	void *space;
	size_t room;
	Cudnn(size_t bytes) : room(bytes) {
		CHECK(cudnnCreate(&h));
		CHECK(cudnnSetStream(h, stream));
		CHECK(cudnnCreateTensorDescriptor(&x));
		CHECK(cudnnCreateTensorDescriptor(&y));
		CHECK(cudnnCreateFilterDescriptor(&w));
		CHECK(cudnnCreateConvolutionDescriptor(&conv));
		CHECK(cudaMalloc(&space, room));
	}
	void set(const Shape &s, cudnnDataType_t t) {
		CHECK(cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, t, s.n, s.c, s.h, s.w));
		CHECK(cudnnSetTensor4dDescriptor(y, CUDNN_TENSOR_NCHW, t, s.n, s.o, s.oh(), s.ow()));
		CHECK(cudnnSetFilter4dDescriptor(w, t, CUDNN_TENSOR_NCHW, s.o, s.c, s.kh, s.kw));
		CHECK(cudnnSetConvolution2dDescriptor(conv, s.ph, s.pw, s.sh, s.sw, s.dh, s.dw, CUDNN_CROSS_CORRELATION, t));
		CHECK(cudnnSetConvolutionMathType(conv, CUDNN_FMA_MATH));
	}
	template <typename F> void best(const char *what, int algorithms, F run) {
		double least = 1e30;
		int of = -1;
		for (int i = 0; i < algorithms; i++) {
			if (run(i) != 0 || cudaStreamSynchronize(stream) != cudaSuccess)
				continue;
			double us = micros([&] { run(i); });
			if (us < least)
				least = us, of = i;
		}
		printf("  cudnn %-8s %8.2f us  algorithm %d\n", what, least, of);
	}
	template <typename T> void time(const Shape &s, T *px, T *pw, T *py) {
		set(s, sizeof(T) == 4 ? CUDNN_DATA_FLOAT : CUDNN_DATA_DOUBLE);
		T one = 1, zero = 0;
		best("forward", CUDNN_CONVOLUTION_FWD_ALGO_COUNT, [&](int i) -> int {
			size_t n = 0;
			auto algorithm = (cudnnConvolutionFwdAlgo_t)i;
			if (cudnnGetConvolutionForwardWorkspaceSize(h, x, w, conv, y, algorithm, &n) != 0 || n > room)
				return 1;
			return cudnnConvolutionForward(h, &one, x, px, w, pw, conv, algorithm, space, n, &zero, y, py);
		});
		best("dx", CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, [&](int i) -> int {
			size_t n = 0;
			auto algorithm = (cudnnConvolutionBwdDataAlgo_t)i;
			if (cudnnGetConvolutionBackwardDataWorkspaceSize(h, w, y, conv, x, algorithm, &n) != 0 || n > room)
				return 1;
			return cudnnConvolutionBackwardData(h, &one, w, pw, y, py, conv, algorithm, space, n, &zero, x, px);
		});
		best("dw", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, [&](int i) -> int {
			size_t n = 0;
			auto algorithm = (cudnnConvolutionBwdFilterAlgo_t)i;
			if (cudnnGetConvolutionBackwardFilterWorkspaceSize(h, x, y, conv, w, algorithm, &n) != 0 || n > room)
				return 1;
			return cudnnConvolutionBackwardFilter(h, &one, x, px, y, py, conv, algorithm, space, n, &zero, w, pw);
		});
	}
};
#endif

#ifndef ON_CPU
static void product(cublasHandle_t h, const Shape &s, float *col, float *w, float *y) {
	float one = 1, zero = 0;
	int p = s.oh() * s.ow(), k = s.taps();
	CHECK(cublasSgemmStridedBatched(h, CUBLAS_OP_T, CUBLAS_OP_N, p, s.o, k, &one, col, k, (long long)p * k, w, k, 0, &zero, y, p, (long long)s.o * p, s.n));
}
static void product(cublasHandle_t h, const Shape &s, double *col, double *w, double *y) {
	double one = 1, zero = 0;
	int p = s.oh() * s.ow(), k = s.taps();
	CHECK(cublasDgemmStridedBatched(h, CUBLAS_OP_T, CUBLAS_OP_N, p, s.o, k, &one, col, k, (long long)p * k, w, k, 0, &zero, y, p, (long long)s.o * p, s.n));
}
#endif

struct Least {
	double us = 1e30;
	std::string what;
	void take(double t, const std::string &of) {
		if (t < us)
			us = t, what = of;
	}
};

template <typename T> struct Run {
	const Shape &s;
	Buffer<T> x, w, bias, dz, y, dx, dw, db, scratch, col;
	Least best[3];

	Run(const Shape &shape)
		: s(shape), x(s.x()), w(s.weights()), bias(s.o), dz(s.y()), y(s.y()), dx(s.x()), dw(s.weights()), db(s.o), scratch(16 << 20),
		  col((size_t)s.n * s.oh() * s.ow() * s.taps()) {
		std::mt19937 r(1);
		x.randomize(r), w.randomize(r), bias.randomize(r), dz.randomize(r);
	}

	void line(int kind, const char *what, BlockTile t, int index, int blocks, const char *good, double us, int splits = 1) {
		double flops = 2.0 * s.y() * s.taps();
		printf("  %-8s tile %2d %3dx%-3d %3d threads %d splits %6d blocks %8.2f us %7.2f TFLOPS %s\n", what, index, t.rows, t.cols, t.threads, splits, blocks, us, flops / us / 1e6, good);
		best[kind].take(us, "tile " + std::to_string(index) + " splits " + std::to_string(splits) + " blocks " + std::to_string(blocks));
	}

	// may reports whether a sum in splits is worth a try.
	bool may(int splits, size_t products, size_t results) const {
		return splits == 1 || (products >= 64 * (size_t)splits && splits * results <= scratch.host.size() && results <= 1000000);
	}

	void gathers(const Reference<T> &want) {
		auto tiles = BlockTiles<T>::conv();
		for (int i = 0; i < (int)tiles.size(); i++)
			for (int splits = 1; splits <= 4; splits++) {
				if (!may(splits, s.taps(), s.y()))
					continue;
				auto run = [&] { return forward<T>(s, x.p, w.p, bias.p, y.p, i, splits, scratch.p); };
				y.poison();
				int blocks = run();
				const char *good = verdict(y, want.y);
				line(0, "forward", tiles[i], i, blocks, good, micros(run), splits);
			}
		for (int i = 0; i < (int)tiles.size(); i++)
			for (int splits = 1; splits <= 4; splits++) {
				if (!may(splits, (size_t)s.o * s.kh * s.kw, s.x()))
					continue;
				auto run = [&] { return input_back<T>(s, dz.p, w.p, x.p, dx.p, i, splits, scratch.p); };
				dx.poison();
				int blocks = run();
				const char *good = verdict(dx, want.dx);
				line(1, "dx", tiles[i], i, blocks, good, micros(run), splits);
			}
	}

	void weights(const Reference<T> &want) {
		auto tiles = BlockTiles<T>::weights();
		size_t room = scratch.host.size() * sizeof(T);
		for (int i = 0; i < (int)tiles.size(); i++)
			for (int wanted : {132, 264, 396, 528, 1056}) {
				dw.poison(), db.poison();
				int blocks = weights_back<T>(s, x.p, dz.p, dw.p, db.p, scratch.p, room, i, wanted, false);
				if (blocks == 0)
					continue;
				std::string good = verdict(dw, want.dw);
				good += std::string(" ") + verdict(db, want.db);
				double sum = micros([&] { weights_back<T>(s, x.p, dz.p, dw.p, db.p, scratch.p, room, i, wanted, true); });
				good += " of which sum " + std::to_string(sum);
				line(2, "dw", tiles[i], i, blocks, good.c_str(), micros([&] { weights_back<T>(s, x.p, dz.p, dw.p, db.p, scratch.p, room, i, wanted, false); }));
			}
	}

	void others() {
#ifndef ON_CPU
		static cublasHandle_t h;
		if (h == nullptr) {
			CHECK(cublasCreate(&h));
			CHECK(cublasSetStream(h, stream));
			static void *space;
			CHECK(cudaMalloc(&space, 32 << 20));
			CHECK(cublasSetWorkspace(h, space, 32 << 20));
		}
		double im2col = micros([&] { columns<T>(s, x.p, col.p, false); });
		double gemm = micros([&] { product(h, s, col.p, w.p, y.p); });
		double col2im = micros([&] { columns<T>(s, dx.p, col.p, true); });
		printf("  im2col %.2f us, cuBLAS %.2f us, col2im %.2f us\n", im2col, gemm, col2im);
#endif
#ifdef HAVE_CUDNN
		static Cudnn cudnn(256 << 20);
		cudnn.time<T>(s, x.p, w.p, y.p);
#endif
	}

	void all() {
		printf("%s: %d images %dx%dx%d to %dx%dx%d\n", s.name, s.n, s.c, s.h, s.w, s.o, s.oh(), s.ow());
		Reference<T> want(s, x.host, w.host, bias.host, dz.host);
		gathers(want);
		weights(want);
		others();
		const char *names[] = {"forward", "dx", "dw"};
		for (int i = 0; i < 3; i++)
			printf("  BEST %-8s %8.2f us %s\n", names[i], best[i].us, best[i].what.c_str());
		fflush(stdout);
	}
};

int main(int argc, char **argv) {
	bool twice = argc > 1 && strcmp(argv[1], "double") == 0;
	CHECK(cudaStreamCreate(&stream));
#ifdef ON_CPU
	for (const Shape &s : small_shapes) {
		Run<float>(s).all();
		Run<double>(s).all();
	}
#else
	(void)small_shapes;
	for (const Shape &s : shapes)
		if (twice)
			Run<double>(s).all();
		else
			Run<float>(s).all();
#endif
	(void)twice;
	puts(failed ? "SOME RESULTS ARE WRONG" : "all results are right");
	return failed;
}
