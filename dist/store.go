package dist

import "sync"

// A store is rank 0's keys and values, and who waits for them.
type store struct {
	mu      sync.Mutex
	values  map[string][]byte
	waiting map[string][]func([]byte)
}

func newStore() *store {
	return &store{values: map[string][]byte{}, waiting: map[string][]func([]byte){}}
}

func (s *store) set(key string, value []byte) {
	s.mu.Lock()
	s.values[key] = value
	calls := s.waiting[key]
	delete(s.waiting, key)
	s.mu.Unlock()
	for _, f := range calls {
		f(value)
	}
}

// get calls f with the value, now or when it is set. f does not wait.
func (s *store) get(key string, f func([]byte)) {
	s.mu.Lock()
	value, ok := s.values[key]
	if !ok {
		s.waiting[key] = append(s.waiting[key], f)
	}
	s.mu.Unlock()
	if ok {
		f(value)
	}
}
