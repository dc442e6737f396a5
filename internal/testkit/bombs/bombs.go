// Package bombs makes snapshots that a stranger may have written to keep a reader
// busy: small pickles in which the same thing stands again and again.
package bombs

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Snapshots returns pickles of about n bytes, after gzip some hundred, by what they
// repeat.
func Snapshots(n int) map[string][]byte {
	frames := func(name string, n int) string {
		return str("frames") + many(1, dict(str("name")+str(name)), n) + put(2)
	}
	half := n / 4 // a reference has two bytes, and there are two lists of them
	long := strings.Repeat("x", min(n/2, 1<<16))
	deep := block(frames("f", half))
	event := func(action, more string) string {
		return dict(str("action") + str(action) + str("size") + num(1) + str("addr") + num(0) + more)
	}
	named := list(dict(str("device") + num(0) + str("name") + str(long)))
	var labels, pools, devices, names strings.Builder
	for i := range n / 100 {
		labels.WriteString(block(str("user_metadata") + str(fmt.Sprint(i)) + str("frames") + get(2)))
		pools.WriteString(event("alloc", str("pool_id")+num(0)+num(i+1)+"\x86"))
		names.WriteString(dict(str("device") + num(i) + str("device_name") + str(fmt.Sprint(i)) + str("totals") + list("")))
		devices.WriteString(list(event("alloc", "")))
	}
	return map[string][]byte{
		"segments of one list":      snapshot(many(3, segment(half, many(4, block(""), half)), half), list(""), ""),
		"blocks of a stack":         snapshot(list(segment(half, many(4, deep, half))), list(""), ""),
		"blocks of a long name":     snapshot(list(segment(half, many(4, block(frames(long, 1000)), half))), list(""), ""),
		"blocks of a long label":    snapshot(list(segment(half, many(4, block(str("user_metadata")+str(long)), half))), list(""), ""),
		"labels of a stack":         snapshot(list(segment(1+n/100, list(deep+labels.String()))), list(""), ""),
		"events of a stack":         snapshot(list(""), list(many(4, event("alloc", frames("f", half)), half)), ""),
		"events of a long name":     snapshot(list(""), list(many(4, event("alloc", frames(long, 10)), half)), ""),
		"events of a long action":   snapshot(list(""), list(many(4, event(long, ""), half)), ""),
		"events of a long pool":     snapshot(list(""), list(many(4, event("alloc", ""), half)), str("pools")+named),
		"segments of a long type":   snapshot(many(3, segment(0, list("")+str("segment_type")+str(long)), half), list(""), ""),
		"blocks in a long state":    snapshot(list(segment(half, many(4, block(str("state")+str(long)), half))), list(""), ""),
		"frees among blocks":        snapshot(list(segment(half, many(4, block(""), half))), list(many(5, event("free_completed", ""), half)), ""),
		"maps among segments":       snapshot(many(3, segment(0, list("")), half), list(many(5, event("segment_map", ""), half)), ""),
		"devices of one trace":      snapshot(list(""), many(5, many(4, event("alloc", ""), half), half), ""),
		"devices and segments":      snapshot(many(3, segment(0, list("")), half), list(devices.String()), str("pools")+list(names.String())),
		"pools of a device":         snapshot(list(""), list(list(pools.String()+again(4, event("alloc", ""), half))), ""),
		"totals of a stack":         snapshot(list(""), list(""), str("pools")+list(dict(str("device")+num(0)+str("totals")+many(4, dict(frames("f", half)), half)))),
		"pools of one list":         snapshot(list(""), list(""), str("pools")+many(3, dict(str("device")+num(0)+str("totals")+many(4, dict(""), half)), half)),
		"a list that holds itself":  snapshot("]"+put(3)+"("+strings.Repeat(get(3), n/2)+"e", list(""), ""),
		"a block that holds itself": snapshot(list(segment(1+n/2, "]"+put(3)+"("+block(str("frames")+get(3))+put(4)+strings.Repeat(get(4), n/2)+"e")), list(""), ""),
	}
}

// snapshot, segment and block are dictionaries of PyTorch's. Segments are at address 0
// and have n blocks of a byte.
func snapshot(segments, traces, more string) []byte {
	return []byte("\x80\x02" + dict(str("segments")+segments+str("device_traces")+traces+more) + ".")
}

func segment(n int, blocks string) string {
	return dict(str("device") + num(0) + str("address") + num(0) + str("total_size") + num(n) + str("stream") + num(0) + str("blocks") + blocks)
}

func block(more string) string {
	return dict(str("size") + num(1) + str("state") + str("active_allocated") + more)
}

// The instructions of a pickle.
func str(s string) string      { return "X" + number(len(s)) + s }
func num(n int) string         { return "J" + number(n) }
func dict(items string) string { return "}(" + items + "u" }
func list(items string) string { return "](" + items + "e" }
func put(at byte) string       { return "q" + string([]byte{at}) }
func get(at byte) string       { return "h" + string([]byte{at}) }

func number(n int) string { return string(binary.LittleEndian.AppendUint32(nil, uint32(n))) }

// again is a value n times.
func again(at byte, value string, n int) string {
	return value + put(at) + strings.Repeat(get(at), max(n-1, 0))
}

// many is a list that has a value n times.
func many(at byte, value string, n int) string {
	return list(again(at, value, n))
}
