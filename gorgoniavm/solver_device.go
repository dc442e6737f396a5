package gorgoniavm

import (
	"gorgonia.org/tensor"

	"github.com/cupool/cupool/nn"
)

// The steps of a Solver on a device: kernels move many weights at once (nn.SGD,
// nn.RMSProp, nn.Adam). The engine's elementwise operations shape gradients, in place.

// moveOnDevice moves all weights on the device and zeroes their gradients,
// unless they are kept.
func (s *Solver) moveOnDevice() error {
	s.batch = s.batch[:0]
	for i := range s.params {
		if p := &s.params[i]; p.onDevice() {
			s.batch = append(s.batch, p.device)
		}
	}
	if len(s.batch) == 0 {
		return nil
	}
	if err := s.launch(); err != nil || s.keep {
		return err
	}
	for _, p := range s.batch {
		if err := s.eng.Zero(p.Grad); err != nil {
			return err
		}
	}
	return nil
}

func (s *Solver) launch() error {
	r := &s.method
	switch r.kind {
	case nesterov: // first by the momentum's part of the step, then by the gradient's
		ahead := nn.SGD{LearningRate: r.rate * r.momentum, Momentum: s.carry}
		if err := ahead.Step(s.eng, s.batch...); err != nil {
			return err
		}
		fallthrough
	case sgd:
		for i := range s.batch {
			s.batch[i].Momentum = nil
		}
		return r.sgd(0).Step(s.eng, s.batch...)
	case momentum:
		return r.sgd(s.carry).Step(s.eng, s.batch...)
	case rmsProp:
		o := nn.RMSProp{LearningRate: r.rate, Rho: r.momentum, Epsilon: r.epsilon, WeightDecay: r.decay, Clip: r.clip}
		return o.Step(s.eng, s.batch...)
	case adam:
		o := nn.Adam{LearningRate: r.rate, Beta1: r.beta1, Beta2: r.beta2, Epsilon: r.epsilon, WeightDecay: r.decay}
		return o.Step(s.eng, s.step, s.batch...)
	}
	return nil
}

// chain keeps the first error of several operations. A device that fails one
// fails those after it too.
type chain struct{ err error }

func (c *chain) then(_ tensor.Tensor, err error) {
	if c.err == nil {
		c.err = err
	}
}

// shapeOnDevice is layers.Shape.
func (s *Solver) shapeOnDevice(p *param) error {
	shape := s.method.shaping
	if shape.Identity() {
		return nil
	}
	e, w, g := s.eng, p.device.Value, p.device.Grad
	var c chain
	if shape.L1 != 0 {
		c.then(e.Sign(w, tensor.WithReuse(p.scratch)))
		c.then(e.MulScalar(p.scratch, p.number(shape.L1), true, tensor.WithIncr(g)))
	}
	if shape.L2 != 0 {
		c.then(e.MulScalar(w, p.number(shape.L2), true, tensor.WithIncr(g)))
	}
	if shape.Scale != 1 {
		c.then(e.MulScalar(g, p.number(shape.Scale), true, tensor.UseUnsafe()))
	}
	if limit := shape.Clip; limit != 0 {
		c.then(e.Clamp(g, p.number(-limit), p.number(limit), tensor.UseUnsafe()))
	}
	return c.err
}

// number returns x as the weight's type has it.
func (p *param) number(x float64) any {
	if p.dt == tensor.Float32 {
		return float32(x)
	}
	return x
}
