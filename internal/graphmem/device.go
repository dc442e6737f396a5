package graphmem

import "github.com/cupool/cupool/device"

// Device is the optional part of a Driver that captures the work given to a
// stream as a graph, which is launched as a whole.
type Device interface {
	// BeginCapture makes s record its work instead of running it.
	BeginCapture(s device.Stream) error
	// EndCapture returns the graph. The capture is over in any case.
	EndCapture(s device.Stream) (graph uintptr, err error)
	// DropCapture ends a capture without a graph.
	DropCapture(s device.Stream)
	// LaunchGraph submits a graph to s.
	LaunchGraph(graph uintptr, s device.Stream) error
	// DestroyGraph gives a graph back to the device.
	DestroyGraph(graph uintptr) error
}
