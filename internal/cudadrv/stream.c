//go:build gpu

// What can be asked about streams, addresses and errors, and captures of
// streams.

#include "calls.h"

cp_value cp_stream_ctx(uintptr_t ctx, uintptr_t stream) {
	cp_value v = {CP_MISSING, 0};
	if (cp_streamGetCtx == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_streamGetCtx((CUstream)stream, (CUcontext *)&v.value));
}

cp_value cp_stream_id(uintptr_t ctx, uintptr_t stream) {
	cp_value v = {CP_MISSING, 0};
	if (cp_streamGetId == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_streamGetId((CUstream)stream, (unsigned long long *)&v.value));
}

cp_value cp_stream_capturing(uintptr_t ctx, uintptr_t stream) {
	cp_value v = {CP_MISSING, 0};
	if (cp_streamIsCapturing == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, cp_streamIsCapturing((CUstream)stream, (CUstreamCaptureStatus *)&v.value));
}

cp_capture cp_stream_capture(uintptr_t ctx, uintptr_t stream) {
	cp_capture c = {CP_MISSING, 0, 0};
	CUcontext prev;
	if (cp_streamGetCaptureInfo == NULL)
		return c;
	c.err = (int)cp_enter(ctx, &prev);
	if (c.err != CUDA_SUCCESS)
		return c;
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	cuuint64_t id = 0;
	c.err = (int)cp_streamGetCaptureInfo((CUstream)stream, &status, &id);
	c.status = (int)status;
	c.id = status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
	cp_leave(prev);
	return c;
}

int cp_stream_begin_capture(uintptr_t ctx, uintptr_t stream) {
	if (cp_streamBeginCapture == NULL)
		return CP_MISSING;
	CP_RUN(ctx, cp_streamBeginCapture((CUstream)stream, CU_STREAM_CAPTURE_MODE_RELAXED));
}

static CUresult drop_capture(CUstream stream) {
	CUgraph graph = NULL;
	CUresult r = cp_streamEndCapture(stream, &graph);
	return r != CUDA_SUCCESS || graph == NULL ? r : cuGraphDestroy(graph);
}

int cp_stream_end_capture(uintptr_t ctx, uintptr_t stream) {
	if (cp_streamEndCapture == NULL)
		return CP_MISSING;
	CP_RUN(ctx, drop_capture((CUstream)stream));
}

cp_pointer cp_pointer_info(uintptr_t ctx, uintptr_t p) {
	cp_pointer i = {CP_MISSING, 0, 0, -1, 0, 0};
	CUcontext prev;
	CUpointer_attribute attrs[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
		CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	void *data[] = {&i.type, &i.managed, &i.device, &i.start, &i.size};
	if (cp_pointerGetAttributes == NULL)
		return i;
	i.err = (int)cp_enter(ctx, &prev);
	if (i.err != CUDA_SUCCESS)
		return i;
	i.err = (int)cp_pointerGetAttributes(5, attrs, data, (CUdeviceptr)p);
	cp_leave(prev);
	return i;
}

int cp_start(void) { return cp_init == NULL ? CP_MISSING : (int)cp_init(0); }

const char *cp_error_name(int err) {
	const char *s = NULL;
	if (cp_getErrorName == NULL || cp_getErrorName((CUresult)err, &s) != CUDA_SUCCESS)
		return NULL;
	return s;
}

const char *cp_error_text(int err) {
	const char *s = NULL;
	if (cp_getErrorString == NULL || cp_getErrorString((CUresult)err, &s) != CUDA_SUCCESS)
		return NULL;
	return s;
}

static CUresult instantiate(CUstream stream, CUgraphExec *exec) {
	CUgraph graph = NULL;
	CUresult r = cp_streamEndCapture(stream, &graph);
	if (r != CUDA_SUCCESS || graph == NULL)
		return r != CUDA_SUCCESS ? r : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	r = cp_graphInstantiate(exec, graph, 0);
	CUresult dropped = cuGraphDestroy(graph);
	if (r != CUDA_SUCCESS || cp_graphUpload == NULL)
		return r != CUDA_SUCCESS ? r : dropped;
	// Else the first launch would do that, and the device wait for it.
	if ((r = cp_graphUpload(*exec, stream)) != CUDA_SUCCESS)
		cp_graphExecDestroy(*exec);
	return r;
}

// cp_stream_instantiate ends a capture and makes its graph ready to run.
cp_value cp_stream_instantiate(uintptr_t ctx, uintptr_t stream) {
	cp_value v = {CP_MISSING, 0};
	if (cp_streamEndCapture == NULL || cp_graphInstantiate == NULL || cp_graphLaunch == NULL || cp_graphExecDestroy == NULL)
		return v;
	CP_RUN_VALUE(ctx, v, instantiate((CUstream)stream, (CUgraphExec *)&v.value));
}

int cp_graph_launch(uintptr_t ctx, uintptr_t exec, uintptr_t stream) {
	CP_RUN(ctx, cp_graphLaunch((CUgraphExec)exec, (CUstream)stream));
}

int cp_graph_destroy(uintptr_t ctx, uintptr_t exec) {
	CP_RUN(ctx, cp_graphExecDestroy((CUgraphExec)exec));
}
