#include "fake.h"

#include <stdlib.h>

// Handles that were ever given out, so that any other value is an error and
// not a crash. Open addressing; nothing is taken out.
static pthread_rwlock_t known_lock = PTHREAD_RWLOCK_INITIALIZER;
static void **known;
static size_t nknown, known_room;

static size_t slot(void **table, size_t size, void *h) {
	size_t i = ((uintptr_t)h >> 4) * 0x9E3779B97F4A7C15u % size;
	while (table[i] != NULL && table[i] != h)
		i = (i + 1) % size;
	return i;
}

void fake_handle_add(void *h) {
	pthread_rwlock_wrlock(&known_lock);
	if (2 * nknown >= known_room) {
		size_t bigger = known_room ? 2 * known_room : 1024;
		void **table = calloc(bigger, sizeof *table);
		for (size_t i = 0; i < known_room; i++)
			if (known[i] != NULL)
				table[slot(table, bigger, known[i])] = known[i];
		free(known);
		known = table;
		known_room = bigger;
	}
	known[slot(known, known_room, h)] = h;
	nknown++;
	pthread_rwlock_unlock(&known_lock);
}

bool fake_handle_known(void *h) {
	pthread_rwlock_rdlock(&known_lock);
	bool yes = known_room > 0 && known[slot(known, known_room, h)] == h;
	pthread_rwlock_unlock(&known_lock);
	return yes;
}
