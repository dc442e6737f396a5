// Package philox makes random numbers from a seed and a place: Philox4x32-10
// of Salmon, Moraes, Dror and Shaw, Parallel random numbers: as easy as 1, 2,
// 3, SC 2011. A number does not depend on those before it, so that any part of
// a sequence can be made anywhere; internal/kernels/random.cu makes the same.
package philox

import "math"

// Words returns four random words for a counter in one of 2⁶⁴ streams.
func Words(counter, stream, seed uint64) [4]uint32 {
	x := [4]uint32{uint32(counter), uint32(counter >> 32), uint32(stream), uint32(stream >> 32)}
	k0, k1 := uint32(seed), uint32(seed>>32)
	for range 10 {
		a, b := 0xD2511F53*uint64(x[0]), 0xCD9E8D57*uint64(x[2])
		x = [4]uint32{uint32(b>>32) ^ x[1] ^ k0, uint32(b), uint32(a>>32) ^ x[3] ^ k1, uint32(a)}
		k0 += 0x9E3779B9
		k1 += 0xBB67AE85
	}
	return x
}

// Uniform fills dst with numbers in [lo, lo+width), which the sum may round to
// lo+width.
func Uniform[T float32 | float64](dst []T, lo, width float64, stream, seed uint64) {
	pairs(dst, stream, seed, func(u, v T) (T, T) { return T(lo) + T(width)*u, T(lo) + T(width)*v })
}

// Normal fills dst with numbers of a normal distribution, by the transform of
// Box and Muller (1958).
func Normal[T float32 | float64](dst []T, mean, deviation float64, stream, seed uint64) {
	pairs(dst, stream, seed, func(u, v T) (T, T) {
		r := T(math.Sqrt(-2 * math.Log(float64(1-u))))
		s, c := math.Sincos(2 * math.Pi * float64(v))
		return T(mean) + T(deviation)*r*T(c), T(mean) + T(deviation)*r*T(s)
	})
}

// Dropout sets dst to src, times scale where an element is kept, which has
// probability keep, and to 0 elsewhere.
func Dropout[T float32 | float64](dst, src []T, keep, scale float64, stream, seed uint64) {
	limit := uint64(keep * (1 << 32))
	var w [4]uint32
	for i, x := range src {
		if i%4 == 0 {
			w = Words(uint64(i/4), stream, seed)
		}
		dst[i] = 0
		if uint64(w[i%4]) < limit {
			dst[i] = x * T(scale)
		}
	}
}

// Binomial fills dst with how many of so many trials are below p.
func Binomial[T float32 | float64](dst []T, trials int, p float64, stream, seed uint64) {
	per := len(units[T]([4]uint32{}))
	counters := (trials + per - 1) / per
	for i := range dst {
		hits := 0
		for c := range counters {
			for _, u := range units[T](Words(uint64(i*counters+c), stream, seed))[:min(per, trials-c*per)] {
				if u < T(p) {
					hits++
				}
			}
		}
		dst[i] = T(hits)
	}
}

// pairs fills dst with what f makes of each two numbers in [0, 1).
func pairs[T float32 | float64](dst []T, stream, seed uint64, f func(u, v T) (T, T)) {
	for counter, i := uint64(0), 0; i < len(dst); counter++ {
		unit := units[T](Words(counter, stream, seed))
		for j := 0; j < len(unit); j += 2 {
			u, v := f(unit[j], unit[j+1])
			if i < len(dst) {
				dst[i] = u
			}
			if i+1 < len(dst) {
				dst[i+1] = v
			}
			i += 2
		}
	}
}

// units returns the numbers in [0, 1) that four words make.
func units[T float32 | float64](w [4]uint32) []T {
	if _, ok := any(T(0)).(float32); ok {
		return []T{narrow[T](w[0]), narrow[T](w[1]), narrow[T](w[2]), narrow[T](w[3])}
	}
	return []T{wide[T](w[0], w[1]), wide[T](w[2], w[3])}
}

// narrow is 24 bits of a word, wide 53 bits of two, as a number in [0, 1).
func narrow[T float32 | float64](w uint32) T { return T(w>>8) * 0x1p-24 }

func wide[T float32 | float64](lo, hi uint32) T {
	return T((uint64(hi)<<32|uint64(lo))>>11) * 0x1p-53
}
