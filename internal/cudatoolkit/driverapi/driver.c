// The library that programs are linked with in place of the driver's, so that
// they start on computers without a driver. cupool env puts the list FUNCTIONS,
// of X(number, name), in front of this.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

// CUresult
enum { SUCCESS = 0, STUB_LIBRARY = 34, CALL_REQUIRES_NEWER_DRIVER = 36 };

#define COUNT(i, name) +1
enum { FUNCTIONS_COUNT = 0 FUNCTIONS(COUNT) };

#define NAME(i, name) #name,
static const char *const names[FUNCTIONS_COUNT] = {FUNCTIONS(NAME)};

// Where each function jumps to.
__attribute__((visibility("hidden"))) void *cupool_driver[FUNCTIONS_COUNT];

static int no_driver(void) { return STUB_LIBRARY; }
static int not_in_driver(void) { return CALL_REQUIRES_NEWER_DRIVER; }

// gorgonia.org/cu calls cuInit before main, and ends the program where that
// fails. So cuInit does not fail here: each later call does, with the driver's
// own error. cupool calls the driver's cuInit by itself.
static int (*driver_init)(unsigned flags) = NULL;

static int init(unsigned flags) {
	if (driver_init != NULL)
		driver_init(flags);
	return SUCCESS;
}

__attribute__((constructor)) static void load(void) {
	void *so = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL); // as if linked with
	for (int i = 0; i < FUNCTIONS_COUNT; i++) {
		void *fn = so == NULL ? (void *)no_driver : dlsym(so, names[i]);
		cupool_driver[i] = fn != NULL ? fn : (void *)not_in_driver;
		if (strcmp(names[i], "cuInit") == 0)
			cupool_driver[i] = (void *)init;
	}
	if (so != NULL)
		*(void **)&driver_init = dlsym(so, "cuInit");
}

// A function passes its arguments on where they are: it is a jump. Nobody
// else's name is taken, as they are hidden in the program.
#define FUNCTION(name) ".text\n.globl " name "\n.hidden " name "\n.type " name ", %function\n" name ":\n"
#if defined(__x86_64__)
#define JUMP(i, name) __asm__(FUNCTION(#name) "jmp *cupool_driver+8*" #i "(%rip)\n");
#elif defined(__aarch64__)
#define JUMP(i, name) \
	__asm__(FUNCTION(#name) "adrp x16, cupool_driver+8*" #i "\nldr x16, [x16, #:lo12:cupool_driver+8*" #i "]\nbr x16\n");
#else
#error "CUDA has no driver for this processor"
#endif
FUNCTIONS(JUMP)
