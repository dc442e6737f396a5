#include "fake.h"

#include <dlfcn.h>
#include <string.h>

// fake_symbol returns where this library has a symbol, or NULL. What opened the
// library may have kept its symbols from others, so that RTLD_DEFAULT does not do.
void *fake_symbol(const char *name) {
	static _Atomic(void *) own;
	Dl_info info;
	if (own == NULL && dladdr((void *)fake_symbol, &info) != 0)
		own = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	return own != NULL ? dlsym(own, name) : NULL;
}

// Names whose meaning depends on the version asked for, newest first, and
// those that older drivers do not have at all.
static const struct {
	const char *name;
	int since;
	const char *symbol;
} versions[] = {
	{"cuMemPrefetchAsync", 12020, "cuMemPrefetchAsync_v2"},
	{"cuMemPrefetchAsync", 8000, "cuMemPrefetchAsync"},
	{"cuMemAdvise", 12020, "cuMemAdvise_v2"},
	{"cuMemAdvise", 8000, "cuMemAdvise"},
	{"cuMemHostRegister", 6050, "cuMemHostRegister_v2"},
	{"cuMemHostGetDevicePointer", 3020, "cuMemHostGetDevicePointer_v2"},
	{"cuIpcOpenMemHandle", 11000, "cuIpcOpenMemHandle_v2"},
	{"cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2"},
	{"cuStreamGetId", 12000, "cuStreamGetId"},
	{"cuMemAllocAsync", 11020, "cuMemAllocAsync"},
};

static void *find(const char *name, int version) {
	const char *symbol = name;
	bool listed = false;
	for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
		if (strcmp(versions[i].name, name) != 0)
			continue;
		listed = true;
		symbol = NULL;
		if (version >= versions[i].since) {
			symbol = versions[i].symbol;
			break;
		}
	}
	if (listed && symbol == NULL)
		return NULL;
	return fake_symbol(symbol);
}

CUresult cuGetProcAddress_v2(const char *name, void **fn, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
	CUresult r = fake_fault(__func__); // works before cuInit
	(void)flags;
	if (r != CUDA_SUCCESS)
		return r;
	*fn = find(name, version);
	if (status != NULL)
		*status = (CUdriverProcAddressQueryResult)(*fn == NULL);
	return *fn != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *name, void **fn, int version, cuuint64_t flags) {
	return cuGetProcAddress_v2(name, fn, version, flags, NULL);
}

static const struct {
	int code;
	const char *name, *text;
} errors[] = {
	{0, "CUDA_SUCCESS", "no error"},
	{1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
	{214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered"},
	{400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{600, "CUDA_ERROR_NOT_READY", "device not ready"},
	{700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
	{704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
	{705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
	{711, "CUDA_ERROR_TOO_MANY_PEERS", "peer mapping resources exhausted"},
	{709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
	{719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
	{800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
	{801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
	{901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
	{902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "operation would result in a merge of separate capture sequences"},
	{903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
	{904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
	{905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
	{907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
	{999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult describe(CUresult code, const char **out, bool text) {
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].code == (int)code) {
			*out = text ? errors[i].text : errors[i].name;
			return CUDA_SUCCESS;
		}
	*out = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuGetErrorName(CUresult code, const char **out) { return describe(code, out, false); }
CUresult cuGetErrorString(CUresult code, const char **out) { return describe(code, out, true); }
