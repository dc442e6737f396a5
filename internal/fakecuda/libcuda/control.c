#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A fault makes calls of one name fail: the nth from now (1: the next) and
// times-1 more after it.
typedef struct {
	char call[64];
	int nth, times;
	CUresult code;
} fault;

typedef struct {
	const char *call; // compared by address: a function's __func__
	unsigned long n;
} counter;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fault faults[32];
static int nfaults;
static counter counters[512];
static _Atomic bool watching; // there are faults, or calls are counted
static bool counting;
static _Atomic unsigned delay_us;

long fake_setting(const char *name, long otherwise) {
	const char *s = getenv(name);
	return s != NULL && *s != 0 ? strtol(s, NULL, 0) : otherwise;
}

bool fake_fatal(CUresult r) {
	switch ((int)r) {
	case 214: case 220: case 700: case 702: case 710: case 714: case 715:
	case 716: case 717: case 718: case 719:
		return true;
	}
	return false;
}

// The controls, for tests in the same process. Each has a Go side in
// ../control.go.

void fakecuda_fail(const char *call, int nth, int code, int times) {
	pthread_mutex_lock(&lock);
	if (nfaults < 32) {
		fault *f = &faults[nfaults++];
		snprintf(f->call, sizeof f->call, "%s", call);
		f->nth = nth;
		f->times = times;
		f->code = (CUresult)code;
	}
	watching = true;
	pthread_mutex_unlock(&lock);
}

void fakecuda_count(int on) {
	pthread_mutex_lock(&lock);
	memset(counters, 0, sizeof counters);
	counting = on;
	watching = on || nfaults > 0;
	pthread_mutex_unlock(&lock);
}

unsigned long fakecuda_calls(const char *call) {
	unsigned long n = 0;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < 512; i++)
		if (counters[i].call != NULL && strcmp(counters[i].call, call) == 0)
			n += counters[i].n;
	pthread_mutex_unlock(&lock);
	return n;
}

void fakecuda_reset(void) {
	pthread_mutex_lock(&lock);
	nfaults = 0;
	memset(counters, 0, sizeof counters);
	counting = false;
	watching = false;
	pthread_mutex_unlock(&lock);
	delay_us = 0;
}

unsigned fake_delay_us(void) { return delay_us; }

static void count(const char *call) {
	for (size_t i = (uintptr_t)call / 8 % 512, end = i + 512; i < end; i++) {
		counter *c = &counters[i % 512];
		if (c->call == NULL)
			c->call = call;
		if (c->call == call) {
			c->n++;
			return;
		}
	}
}

CUresult fake_fault(const char *call) {
	CUresult r = CUDA_SUCCESS;
	if (!watching)
		return r;
	pthread_mutex_lock(&lock);
	if (counting)
		count(call);
	for (int i = 0; i < nfaults; i++) {
		fault *f = &faults[i];
		if (strcmp(f->call, call) != 0 || f->times == 0)
			continue;
		if (f->nth > 1) {
			f->nth--;
			continue;
		}
		f->times--;
		r = f->code;
		break;
	}
	pthread_mutex_unlock(&lock);
	return r;
}

// FAKECUDA_FAIL holds faults for a program that cannot call fakecuda_fail:
// name:nth:code:times, joined by commas.
__attribute__((constructor)) static void from_environment(void) {
	const char *s = getenv("FAKECUDA_FAIL");
	char call[64];
	while (s != NULL && *s != 0) {
		int nth = 1, code = 999, times = 1;
		if (sscanf(s, "%63[^:,]:%d:%d:%d", call, &nth, &code, &times) >= 1)
			fakecuda_fail(call, nth, code, times);
		s = strchr(s, ',');
		if (s != NULL)
			s++;
	}
	delay_us = (unsigned)fake_setting("FAKECUDA_DELAY_US", 0);
}
