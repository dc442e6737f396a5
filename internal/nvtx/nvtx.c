//go:build gpu

#include "nvtx.h"

#include <dlfcn.h>
#include <string.h>

// What follows is the interface between a program and a tool's library, as NVTX 3
// fixes it. The library exports InitializeInjectionNvtx2, which gets a function
// that returns tables by number. It finds the table of callbacks there, asks it for
// the functions of each module, and fills in those that it has.

typedef void (*function)(void);

enum { ETID_CALLBACKS = 1, ETID_VERSIONINFO = 3 };

enum { CORE = 1, CUDA, OPENCL, CUDART, CORE2, SYNC, MODULES };

// Of each module, the number of functions and one: the first place is empty.
static const unsigned int sizes[MODULES] = {[CORE] = 16, [CUDA] = 9, [OPENCL] = 15, [CUDART] = 7, [CORE2] = 16, [SYNC] = 7};

enum { DOMAIN_RANGE_START_EX = 2, DOMAIN_RANGE_END = 3, DOMAIN_CREATE_A = 12 }; // of CORE2

static function functions[MODULES][16]; // what the tool has, or NULL
static function *tables[MODULES][17];   // pointers to them, and NULL at the end

static int module_table(int module, function ***table, unsigned int *size) {
	if (module < CORE || module >= MODULES)
		return 0;
	if (table != NULL)
		*table = tables[module];
	if (size != NULL)
		*size = sizes[module];
	return 1;
}

static void set_version(uint32_t version) { (void)version; }

static const struct {
	size_t size;
	int (*module_table)(int, function ***, unsigned int *);
} callbacks = {sizeof callbacks, module_table};

static const struct {
	size_t size;
	uint32_t version, reserved;
	void (*set_version)(uint32_t);
} version_info = {sizeof version_info, 3, 0, set_version};

static const void *export_table(uint32_t id) {
	switch (id) {
	case ETID_CALLBACKS:
		return &callbacks;
	case ETID_VERSIONINFO:
		return &version_info;
	default:
		return NULL;
	}
}

struct attributes { // nvtxEventAttributes_t
	uint16_t version, size;
	uint32_t category;
	int32_t color_type;
	uint32_t color;
	int32_t payload_type, reserved;
	int64_t payload;
	int32_t message_type;
	const char *message;
};

enum { ATTRIBUTES_VERSION = 3, PAYLOAD_INT64 = 2, MESSAGE_ASCII = 1 };

static struct {
	void *domain;
	uint64_t (*start)(void *, const struct attributes *);
	void (*end)(void *, uint64_t);
} tool;

int cp_nvtx_load(const char *path) {
	void *so = dlopen(path, RTLD_LAZY);
	if (so == NULL)
		return 0;
	int (*initialize)(const void *(*)(uint32_t)) = (int (*)(const void *(*)(uint32_t)))dlsym(so, "InitializeInjectionNvtx2");
	for (int m = CORE; m < MODULES; m++)
		for (unsigned int i = 1; i < sizes[m]; i++)
			tables[m][i] = &functions[m][i];
	if (initialize == NULL || initialize(export_table) == 0) {
		dlclose(so);
		return 0;
	}
	void *(*create)(const char *) = (void *(*)(const char *))functions[CORE2][DOMAIN_CREATE_A];
	tool.start = (uint64_t(*)(void *, const struct attributes *))functions[CORE2][DOMAIN_RANGE_START_EX];
	tool.end = (void (*)(void *, uint64_t))functions[CORE2][DOMAIN_RANGE_END];
	if (create != NULL)
		tool.domain = create("cupool");
	return tool.start != NULL && tool.end != NULL;
}

uint64_t cp_nvtx_start(const char *name, size_t len, int64_t payload) {
	char text[256];
	if (len >= sizeof text)
		len = sizeof text - 1;
	memcpy(text, name, len);
	text[len] = '\0';
	struct attributes a = {
		.version = ATTRIBUTES_VERSION, .size = sizeof a,
		.payload_type = PAYLOAD_INT64, .payload = payload,
		.message_type = MESSAGE_ASCII, .message = text,
	};
	return tool.start(tool.domain, &a);
}

void cp_nvtx_end(uint64_t range) { tool.end(tool.domain, range); }
