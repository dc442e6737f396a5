package simdev

// Corruptions break the rule W1 of the default stream.
var Corruptions = map[string]func(*Device){
	"an operation too many": func(d *Device) { d.stream0.ops = append(d.stream0.ops, op{}) },
	"an operation lost":     func(d *Device) { d.stream0.ops = d.stream0.ops[1:] },
	"over too early":        func(d *Device) { d.stream0.completed++ },
	"a number of nothing":   func(d *Device) { d.stream0.submitted++ },
}
