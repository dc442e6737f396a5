package main

// gpuMutants are those of featureMutants that -gpu runs.
var gpuMutants = []mutant{
	{
		name: "features: device, managed and pinned memory: TestConformance",
		old:  `return &driver{id: owner(drivers.Add(1)), ctx: c, release: release, traits: c.traits(o)}, nil`,
		now:  `return &driver{id: owner(drivers.Add(1)), ctx: c, release: release, traits: c.traits(options{})}, nil`,
		in:   "cuda", run: "^TestConformance$/^(managed|pinned)$/^segments$/^sizes$",
		tags: "gpu",
	},
	{
		name: "features: properties, location: TestCUDANoLocation",
		old: `
at := cfg.Location
if at == (Location{}) {`,
		now: `
at := Location{}
if at == (Location{}) {`,
		in: "native", run: "^TestCUDANoLocation$",
		tags: "gpu",
	},
	{
		name: "features: properties, location: TestCUDALocation",
		old:  `if r = cudadrv.PoolSetAccess(d.ctx.handle, p, d.ctx.device, int(ReadWriteAccess)); r != cudadrv.Success {`,
		now:  `if r = cudadrv.NotSupported; r != cudadrv.Success {`,
		in:   "native", run: "^TestCUDALocation$",
		tags: "gpu",
	},
	{
		name: "features: CUDA graphs: memory stays put: TestGraphFork",
		old:  `if m.inFork || m.open && h.forks < m.forks {`,
		now:  `if false {`,
		in:   ".", run: "^TestGraphFork$",
		tags: "gpu",
	},
	{
		name: "features: NotSupported where the driver lacks it: TestOldDriver",
		old:  `case cudadrv.NotSupported, cudadrv.NoDevice, cudadrv.Missing, cudadrv.StubLibrary, cudadrv.CallNeedsNewer,`,
		now:  `case cudadrv.NotSupported, cudadrv.NoDevice, cudadrv.StubLibrary, cudadrv.CallNeedsNewer,`,
		in:   "cuda", run: "^TestOldDriver$",
		tags: "gpu",
	},
	{
		name: "features: bad device: TestOpenErrors",
		old:  `dev, r := calls.Device(ordinal)`,
		now:  `dev, r := calls.Device(0)`,
		in:   "cuda", run: "^TestOpenErrors$",
		tags: "gpu",
	},
	{
		name: "features: bad device, the kind of its memory: TestOpenErrors",
		old:  `return &device.ConfigError{Field: "Memory", Value: k, Reason: "must be MemoryDevice, MemoryManaged or MemoryPinned"}`,
		in:   "cuda", run: "^TestOpenErrors$",
		tags: "gpu",
	},
	{
		name: "features: driver calls named in Nsight Systems: TestToolSeesNames",
		old:  `defer nvtx.Start("grow the pool", r.rounded).End()`,
		in:   ".", run: "^TestToolSeesNames$",
		tags: "gpu",
	},
}
