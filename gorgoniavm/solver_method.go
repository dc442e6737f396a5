package gorgoniavm

import (
	"math"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/layers"
	"github.com/cupool/cupool/nn"
)

// Method is how a Solver moves weights: SGD, Momentum, RMSProp, Adam or AdamW.
// In each of them, a number that is 0 has its default, which is Gorgonia's.
type Method interface {
	rule() (rule, error)
}

// Regularization is what becomes of gradients before a Method uses them: first
// the gradients of penalties for large weights are added, then it is divided
// by the batch's size, and then clamped.
type Regularization struct {
	L1        float64 // adds L1·sign(weight). 0: nothing
	L2        float64 // adds L2·weight. 0: nothing
	BatchSize float64 // divides, where the loss is a sum over samples. 0: 1
	Clip      float64 // clamps every element to [-Clip, Clip]. 0: not
}

// SGD is stochastic gradient descent, gorgonia.NewVanillaSolver's method.
type SGD struct {
	LearnRate float64 // 0: 0.001
	Regularization
}

// Momentum is stochastic gradient descent with momentum,
// gorgonia.NewMomentum's method:
//
//	m ← Momentum·m + LearnRate·gradient
//	weight ← weight − m
//
// Gorgonia's own regularizes m instead of the weights, and forgets the m of
// scalars.
type Momentum struct {
	LearnRate float64 // 0: 0.001
	Momentum  float64 // in [0, 1). 0: 0.9
	// Nesterov takes the gradient where momentum is about to carry the
	// weights (Sutskever et al., 2013): they move by LearnRate·gradient + Momentum·m.
	Nesterov bool
	Regularization
}

// RMSProp is the method of Hinton's lecture 6, and gorgonia.NewRMSPropSolver's:
//
//	v ← Rho·v + (1−Rho)·gradient²
//	weight ← weight − LearnRate·clamp(gradient)/√(v+Epsilon) − L2·weight
//
// Gorgonia's own does not clamp the gradients of scalars.
type RMSProp struct {
	LearnRate float64 // 0: 0.001
	Rho       float64 // in [0, 1). 0: 0.999
	Epsilon   float64 // 0: 1e-8
	L2        float64 // 0: none
	Clip      float64 // clamps to [-Clip, Clip]. 0: not
}

// Adam is the method of Kingma and Ba (2015), and gorgonia.NewAdamSolver's.
type Adam struct {
	LearnRate    float64 // 0: 0.001
	Beta1, Beta2 float64 // in [0, 1). 0: 0.9 and 0.999
	Epsilon      float64 // 0: 1e-8
	Regularization
}

// AdamW is Adam with decoupled weight decay (Loshchilov and Hutter, 2019). Its
// defaults are those of gorgonia.NewAdamW, which itself changes no weights in
// Gorgonia v0.9.18.
type AdamW struct {
	LearnRate    float64 // 0: 0.001
	Beta1, Beta2 float64 // in [0, 1). 0: 0.9 and 0.999
	Epsilon      float64 // 0: 1e-8
	WeightDecay  float64 // 0: 0.01
	Regularization
}

// kind is a method's formula.
type kind int

const (
	sgd kind = iota
	momentum
	nesterov
	rmsProp
	adam
)

// rule is a Method with its defaults filled in.
type rule struct {
	kind         kind
	rate         float64
	shaping      layers.Shaping
	momentum     float64 // RMSProp: ρ
	beta1, beta2 float64
	epsilon      float64
	decay        float64 // AdamW: of weights; RMSProp: L2
	clip         float64 // RMSProp's, which comes later than the others'
}

func (r *rule) sgd(momentum float64) nn.SGD {
	return nn.SGD{LearningRate: r.rate, Momentum: momentum}
}

// states returns how many tensors the method remembers of each weight. On a
// device, where it is made of several operations, some need one to work in.
func (r *rule) states(onDevice bool) int {
	scratch := 0
	if onDevice && r.shaping.L1 != 0 {
		scratch = 1
	}
	switch r.kind {
	case sgd:
		return scratch
	case momentum, nesterov:
		return 1 + scratch
	case rmsProp:
		return 1
	default:
		return 2 + scratch
	}
}

func (m SGD) rule() (rule, error) {
	r := rule{kind: sgd, rate: m.LearnRate}
	return r.complete(m.Regularization)
}

func (m Momentum) rule() (rule, error) {
	r := rule{kind: momentum, rate: m.LearnRate, momentum: or(m.Momentum, 0.9)}
	if m.Nesterov {
		r.kind = nesterov
	}
	return r.complete(m.Regularization)
}

func (m RMSProp) rule() (rule, error) {
	r := rule{kind: rmsProp, rate: m.LearnRate, momentum: or(m.Rho, 0.999), epsilon: or(m.Epsilon, 1e-8), decay: m.L2, clip: m.Clip}
	return r.complete(Regularization{})
}

func (m Adam) rule() (rule, error) {
	r := rule{kind: adam, rate: m.LearnRate, beta1: or(m.Beta1, 0.9), beta2: or(m.Beta2, 0.999), epsilon: or(m.Epsilon, 1e-8)}
	return r.complete(m.Regularization)
}

func (m AdamW) rule() (rule, error) {
	r := rule{kind: adam, rate: m.LearnRate, beta1: or(m.Beta1, 0.9), beta2: or(m.Beta2, 0.999), epsilon: or(m.Epsilon, 1e-8), decay: or(m.WeightDecay, 0.01)}
	return r.complete(m.Regularization)
}

// complete fills in what all methods have, and checks everything.
func (r rule) complete(g Regularization) (rule, error) {
	r.rate = or(r.rate, 0.001)
	r.shaping = layers.Shaping{L1: g.L1, L2: g.L2, Scale: 1 / or(g.BatchSize, 1), Clip: g.Clip}
	clip := g.Clip + r.clip // one of them is 0
	for _, f := range []struct {
		name  string
		value float64
		ok    bool
		want  string
	}{
		{"LearnRate", r.rate, r.rate > 0, "positive"},
		{"Momentum or Rho", r.momentum, r.momentum >= 0 && r.momentum < 1, "in [0, 1)"},
		{"Beta1", r.beta1, r.beta1 >= 0 && r.beta1 < 1, "in [0, 1)"},
		{"Beta2", r.beta2, r.beta2 >= 0 && r.beta2 < 1, "in [0, 1)"},
		{"Epsilon", r.epsilon, r.epsilon >= 0, "not negative"},
		{"WeightDecay or L2", r.decay, r.decay >= 0, "not negative"},
		{"L1", g.L1, g.L1 >= 0, "not negative"},
		{"L2", g.L2, g.L2 >= 0, "not negative"},
		{"BatchSize", g.BatchSize, g.BatchSize >= 0, "not negative"},
		{"Clip", clip, clip >= 0, "not negative"},
	} {
		if !f.ok || math.IsInf(f.value, 0) {
			return rule{}, &cupool.ConfigError{Field: f.name, Value: f.value, Reason: "must be finite and " + f.want}
		}
	}
	return r, nil
}

// or returns x, or its default.
func or(x, otherwise float64) float64 {
	if x == 0 {
		return otherwise
	}
	return x
}
