package cuda

import "sync"

// handleSet holds handles with a value each. Every call looks one up, so the set
// is cut into shards with a lock each. The zero handleSet is empty.
type handleSet[V any] [64]struct {
	sync.RWMutex
	m map[uintptr]V
	_ [32]byte // a cache line each
}

func (s *handleSet[V]) shard(h uintptr) int {
	return int(uint64(h>>4) * 0x9E3779B97F4A7C15 >> 58) // handles are 16-byte aligned addresses or small numbers
}

func (s *handleSet[V]) has(h uintptr) bool {
	_, ok := s.get(h)
	return ok
}

func (s *handleSet[V]) get(h uintptr) (v V, ok bool) {
	sh := &s[s.shard(h)]
	sh.RLock()
	v, ok = sh.m[h]
	sh.RUnlock()
	return v, ok
}

func (s *handleSet[V]) put(h uintptr, v V) {
	sh := &s[s.shard(h)]
	sh.Lock()
	defer sh.Unlock()
	if sh.m == nil {
		sh.m = make(map[uintptr]V)
	}
	sh.m[h] = v
}

// take removes h. Of several callers with the same h one gets it.
func (s *handleSet[V]) take(h uintptr) (v V, ok bool) {
	sh := &s[s.shard(h)]
	sh.Lock()
	defer sh.Unlock()
	v, ok = sh.m[h]
	delete(sh.m, h)
	return v, ok
}

// count returns the number of handles whose values pass.
func (s *handleSet[V]) count(pass func(V) bool) (n int) {
	for i := range s {
		s[i].RLock()
		for _, v := range s[i].m {
			if pass(v) {
				n++
			}
		}
		s[i].RUnlock()
	}
	return n
}

// takeAll removes the handles whose values pass.
func (s *handleSet[V]) takeAll(pass func(V) bool) []uintptr {
	var hs []uintptr
	for i := range s {
		s[i].Lock()
		for h, v := range s[i].m {
			if pass(v) {
				hs = append(hs, h)
				delete(s[i].m, h)
			}
		}
		s[i].Unlock()
	}
	return hs
}
