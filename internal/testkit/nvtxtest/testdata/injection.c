// A tool's library that writes the ranges of a program to the file NVTX_RECORD. It
// is built with NVIDIA's headers where the compiler finds them, which shows that
// the program's idea of the interface is the same.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
#include <stdint.h>

typedef void *nvtxDomainHandle_t;
typedef uint64_t nvtxRangeId_t;
typedef struct {
	uint16_t version, size;
	uint32_t category;
	int32_t colorType;
	uint32_t color;
	int32_t payloadType, reserved0;
	union {
		int64_t llValue;
	} payload;
	int32_t messageType;
	union {
		const char *ascii;
	} message;
} nvtxEventAttributes_t;
typedef void (*NvtxFunctionPointer)(void);
typedef NvtxFunctionPointer **NvtxFunctionTable;
typedef struct {
	size_t struct_size;
	int (*GetModuleFunctionTable)(int, NvtxFunctionTable *, unsigned int *);
} NvtxExportTableCallbacks;
typedef struct {
	size_t struct_size;
	uint32_t version, reserved0;
	void (*SetInjectionNvtxVersion)(uint32_t);
} NvtxExportTableVersionInfo;
typedef const void *(*NvtxGetExportTableFunc_t)(uint32_t);
enum { NVTX_VERSION = 3, NVTX_PAYLOAD_TYPE_INT64 = 2, NVTX_MESSAGE_TYPE_ASCII = 1 };
enum { NVTX_CB_MODULE_CORE = 1, NVTX_CB_MODULE_CORE2 = 5, NVTX_CB_MODULE_SIZE = 7 };
enum { NVTX_CBID_CORE2_DomainRangeStartEx = 2, NVTX_CBID_CORE2_DomainRangeEnd = 3, NVTX_CBID_CORE2_DomainCreateA = 12, NVTX_CBID_CORE2_SIZE = 16 };
enum { NVTX_ETID_CALLBACKS = 1, NVTX_ETID_VERSIONINFO = 3 };
#endif

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static FILE *out;
static char *names[1 << 16]; // of ranges, by number
static nvtxRangeId_t last;

static nvtxDomainHandle_t create(const char *name) { return (nvtxDomainHandle_t)strdup(name); }

static nvtxRangeId_t start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *a) {
	if (a->version != NVTX_VERSION || a->size != sizeof *a || a->payloadType != NVTX_PAYLOAD_TYPE_INT64 || a->messageType != NVTX_MESSAGE_TYPE_ASCII)
		abort();
	pthread_mutex_lock(&mu);
	nvtxRangeId_t id = ++last;
	names[id] = strdup(a->message.ascii);
	fprintf(out, "start\t%s\t%s\t%lld\n", (char *)domain, a->message.ascii, (long long)a->payload.llValue);
	fflush(out);
	pthread_mutex_unlock(&mu);
	return id;
}

static void end(nvtxDomainHandle_t domain, nvtxRangeId_t id) {
	pthread_mutex_lock(&mu);
	fprintf(out, "end\t%s\t%s\t0\n", (char *)domain, names[id]);
	fflush(out);
	pthread_mutex_unlock(&mu);
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
	const NvtxExportTableVersionInfo *version = get(NVTX_ETID_VERSIONINFO);
	const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
	if (version == NULL || version->struct_size != sizeof *version || version->version != NVTX_VERSION)
		return 0;
	if (callbacks == NULL || callbacks->struct_size != sizeof *callbacks || get(99) != NULL)
		return 0;
	version->SetInjectionNvtxVersion(NVTX_VERSION);
	NvtxFunctionTable table;
	unsigned int size;
	for (int module = NVTX_CB_MODULE_CORE; module < NVTX_CB_MODULE_SIZE; module++) {
		if (!callbacks->GetModuleFunctionTable(module, &table, &size) || table[0] != NULL || table[size] != NULL)
			return 0;
		for (unsigned int i = 1; i < size; i++)
			if (table[i] == NULL)
				return 0;
	}
	if (callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_SIZE, NULL, NULL))
		return 0;
	if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) || size != NVTX_CBID_CORE2_SIZE)
		return 0;
	*table[NVTX_CBID_CORE2_DomainRangeStartEx] = (NvtxFunctionPointer)start;
	*table[NVTX_CBID_CORE2_DomainRangeEnd] = (NvtxFunctionPointer)end;
	*table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create;
	out = fopen(getenv("NVTX_RECORD"), "w");
	return out != NULL;
}
