package devices

import (
	"math"
	"reflect"

	"github.com/cupool/cupool"
)

// Stats are the statistics of a Set.
type Stats struct {
	Devices []cupool.Stats // by number
	Shared  []cupool.Stats // of the pools for all devices
	// Sum has all of them added up. A Peak in it is the sum of the pools' peaks,
	// which they may have reached at different moments: no sum was ever higher, but
	// it may have been lower. LargestFree is the largest of one pool, as no block
	// spans two. Limit is 0 where a pool has none, and math.MaxInt64 where the sum is
	// more. Labels are in the others alone.
	Sum cupool.Stats
}

// Stats returns the statistics of all pools, one after the other, while their
// streams go on: sums are of moments shortly after each other.
func (s *Set) Stats() Stats {
	var st Stats
	limited := true
	for i, c := range s.all() {
		one := c.Stats()
		if i < s.n {
			st.Devices = append(st.Devices, one)
		} else {
			st.Shared = append(st.Shared, one)
		}
		limited = limited && one.Limit > 0
		largest, limit := max(st.Sum.LargestFree, one.LargestFree), st.Sum.Limit+min(one.Limit, math.MaxInt64-st.Sum.Limit)
		add(reflect.ValueOf(&st.Sum).Elem(), reflect.ValueOf(one))
		st.Sum.LargestFree, st.Sum.Limit = largest, limit
	}
	if !limited {
		st.Sum.Limit = 0
	}
	return st
}

// add adds every number of a struct to that of another one of its type.
func add(to, from reflect.Value) {
	for i := range to.NumField() {
		switch f := to.Field(i); f.Kind() {
		case reflect.Struct:
			add(f, from.Field(i))
		case reflect.Int64:
			f.SetInt(f.Int() + from.Field(i).Int())
		}
	}
}
