package layers

import "math"

// What solvers do besides SGD and Adam.

// Shaping is what becomes of a gradient before an optimizer uses it: that of a
// regularization of the weights is added, the sum scaled, and then clamped.
type Shaping struct {
	L1, L2 float64
	Scale  float64
	Clip   float64 // to [-Clip, Clip]; 0: not at all
}

// Identity reports whether nothing becomes of gradients.
func (s Shaping) Identity() bool { return s == Shaping{Scale: 1} }

// Shape shapes the gradient g of weights w.
func Shape[T Float](g, w []T, s Shaping) {
	if s.Identity() {
		return
	}
	l1, l2, scale := T(s.L1), T(s.L2), T(s.Scale)
	g = g[:len(w)]
	for i, x := range w {
		g[i] = (g[i] + l1*sign(x) + l2*x) * scale
	}
	Clamp(g, s.Clip)
}

func clamp[T Float](x, limit T) T { return min(max(x, -limit), limit) }

// Clamp moves elements that are farther than limit from zero to there. A limit
// of 0 is none.
func Clamp[T Float](g []T, limit float64) {
	if limit == 0 {
		return
	}
	for i, x := range g {
		g[i] = clamp(x, T(limit))
	}
}

func sign[T Float](x T) T {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return 0
}

// Nesterov moves w against its gradient g with Nesterov's momentum, as
// Sutskever et al. (2013) write it for the gradient at w:
//
//	v ← carry·v + g
//	w ← w − lr·(g + momentum·v)
//
// carry is the momentum, times the last lr by this one: v is in units of lr.
func Nesterov[T Float](w, g, v []T, lr, carry, momentum float64) {
	rate, keep, mu := T(lr), T(carry), T(momentum)
	w, v = w[:len(g)], v[:len(g)]
	for i, d := range g {
		x := keep*v[i] + d
		v[i] = x
		w[i] -= rate * (d + mu*x)
	}
}

// RMSPropOptions are the constants of RMSProp.
type RMSPropOptions struct{ LR, Rho, Epsilon, Decay, Clip float64 }

// RMSProp moves w against its gradient g, after Hinton's lecture 6:
//
//	v ← ρ·v + (1−ρ)·g²
//	w ← w − lr·clamp(g)/√(v+ε) − decay·w
func RMSProp[T Float](w, g, v []T, o RMSPropOptions) {
	rho, rest, rate, eps, decay := T(o.Rho), T(1-o.Rho), T(o.LR), T(o.Epsilon), T(o.Decay)
	w, v = w[:len(g)], v[:len(g)]
	for i, d := range g {
		v[i] = rho*v[i] + rest*d*d
	}
	for i, d := range g {
		if o.Clip != 0 {
			d = clamp(d, T(o.Clip))
		}
		w[i] -= rate*d/T(math.Sqrt(float64(v[i]+eps))) + decay*w[i]
	}
}
