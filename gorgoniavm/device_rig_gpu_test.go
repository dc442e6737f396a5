//go:build gpu

package gorgoniavm_test

// newDeviceMeter is newMeter on a device whose memory the CPU cannot touch: a GPU
// where there is one.
var newDeviceMeter = newGPUMeter

// computes says whether that device computes.
const computes = true
