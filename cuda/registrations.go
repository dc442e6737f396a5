package cuda

import (
	"runtime"
	"sync"
)

// registrations are the pieces of Go memory that the driver has page-locked. A
// pinner keeps Go from moving or collecting each of them.
type registrations struct {
	mu sync.Mutex
	m  map[*byte]registration
}

type registration struct {
	bytes  []byte
	pinner *runtime.Pinner
}

func (r *registrations) takeAll() []registration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []registration
	for _, b := range r.m {
		all = append(all, b)
	}
	r.m = nil
	return all
}
