// Functions for the tests of package clib.
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#define API __declspec(dllexport)
#else
#define API
#endif

static __thread void *now;
static __thread int sets;

API int get_context(void **out) {
	*out = now;
	return 0;
}

API int set_context(void *context) {
	if ((uintptr_t)context == 13)
		return 201;
	now = context;
	sets++;
	return 0;
}

API int count_sets(void) { return sets; }

API int code(int c) { return c; }

API int context_is(uintptr_t want) { return (uintptr_t)now == want ? 0 : 700; }

API int query(uintptr_t event) { return event < 100 ? 0 : (int)event; }

API int two(uint64_t *a, uintptr_t in, uint32_t *b) {
	*a = in + 1;
	*b = (uint32_t)(in + 2);
	return 0;
}

// many returns the sum of its arguments, each multiplied by its number.
API int64_t many(int a1, int64_t a2, int a3, int64_t a4, int a5, int64_t a6, int a7, int64_t a8, int a9, int64_t a10, int a11, int64_t a12,
	int a13, int64_t a14, int a15, int64_t a16, int a17, int64_t a18, int a19, int64_t a20, int a21, int64_t a22, int a23, int64_t a24) {
	return a1 + 2 * a2 + 3 * a3 + 4 * a4 + 5 * a5 + 6 * a6 + 7 * a7 + 8 * a8 + 9 * a9 + 10 * a10 + 11 * a11 + 12 * a12 +
		13 * a13 + 14 * a14 + 15 * a15 + 16 * a16 + 17 * a17 + 18 * a18 + 19 * a19 + 20 * a20 + 21 * a21 + 22 * a22 + 23 * a23 + 24 * a24;
}

typedef struct {
	int64_t words[8];
} big;

API int64_t by_value(int64_t *sum, big b, int scale) {
	*sum = 0;
	for (int i = 0; i < 8; i++)
		*sum += scale * (i + 1) * b.words[i];
	return 0;
}

static int order;

API int add(int digit) {
	order = order * 10 + digit;
	return 0;
}

API int take_order(void) {
	int o = order;
	order = 0;
	return o;
}

API int call_back(int (*f)(int), int x) { return f(x) + 1; }

API const char *text(void) { return "a text"; }
