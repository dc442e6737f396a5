package tensorop

import "gorgonia.org/tensor"

// Engine is everything that tensor looks for in an engine.
type Engine interface {
	tensor.Engine
	tensor.NonStdEngine
	tensor.Adder
	tensor.Suber
	tensor.Muler
	tensor.Diver
	tensor.Power
	tensor.Moder
	tensor.FMAer
	tensor.MinBetweener
	tensor.MaxBetweener
	tensor.Lter
	tensor.Lteer
	tensor.Gter
	tensor.Gteer
	tensor.ElEqer
	tensor.Mapper
	tensor.Neger
	tensor.Inver
	tensor.Squarer
	tensor.Cuber
	tensor.Exper
	tensor.Tanher
	tensor.Loger
	tensor.Log2er
	tensor.Log10er
	tensor.Sqrter
	tensor.Cbrter
	tensor.InvSqrter
	tensor.Signer
	tensor.Abser
	tensor.Clamper
	tensor.SoftMaxer
	tensor.Reducer
	tensor.OptimizedReducer
	tensor.Sumer
	tensor.Miner
	tensor.Maxer
	tensor.Argmaxer
	tensor.Argminer
	tensor.Tracer
	tensor.MatMuler
	tensor.MatVecMuler
	tensor.InnerProder
	tensor.OuterProder
	tensor.Dotter
	tensor.SVDer
	tensor.Transposer
	tensor.Concater
	tensor.DenseStacker
	tensor.Repeater
	tensor.Diager
	tensor.ByIndiceser
}
