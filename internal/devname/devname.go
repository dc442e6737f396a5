// Package devname reads the names of devices that programs take from a flag.
package devname

import (
	"strconv"
	"strings"

	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/device"
)

// A Name says which device is meant.
type Name struct {
	Host     bool     // the host device, else a CUDA device
	Capacity int64    // of the host device; 0: the default
	Ordinal  int      // of the CUDA device
	Memory   []string // kinds of its memory: device, managed, pinned
}

// Parse reads a name, as cupool.Open describes it. It fails with a
// *device.ConfigError.
func Parse(name string) (n Name, err error) {
	fail := func(value, reason string) (Name, error) {
		return Name{}, &device.ConfigError{Field: "device", Value: value, Reason: reason}
	}
	dev, options, _ := strings.Cut(name, ",")
	kind, arg, hasArg := strings.Cut(dev, ":")
	switch kind {
	case "host", "":
		n.Host = true
		if hasArg {
			if n.Capacity, err = bytesize.Parse(arg); err != nil || n.Capacity == 0 {
				return fail(name, "the capacity of the host device is a size such as 4GiB")
			}
		}
		if options != "" {
			return fail(name, "the host device takes no options")
		}
	case "cuda":
		if hasArg {
			if n.Ordinal, err = strconv.Atoi(arg); err != nil || n.Ordinal < 0 {
				return fail(name, "a CUDA device is cuda:0, cuda:1, ...")
			}
		}
		for _, o := range strings.FieldsFunc(options, func(r rune) bool { return r == ',' }) {
			if o != "device" && o != "managed" && o != "pinned" {
				return fail(options, "options of a CUDA device are device, managed and pinned")
			}
			n.Memory = append(n.Memory, o)
		}
	default:
		return fail(name, `must be "host", "host:BYTES", "cuda" or "cuda:ORDINAL"`)
	}
	return n, nil
}
