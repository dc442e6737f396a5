package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/bytesize"
)

const infoText = `Shows the devices of this computer, their memory, the driver's version and what
is supported, and the settings of the allocator in effect with where each comes
from: from -conf, from the environment (` + cupool.AllocConf + `, or CUPOOL_LIMIT and the
like for one) or by default. Works without CUDA and
without a GPU too.`

func infoCommand() *cobra.Command {
	c := newCommand("info", "show devices, versions and what is supported", infoText, 0, 0, "")
	conf := c.Flags().String("conf", "", confUsage)
	asJSON := c.Flags().Bool("json", false, jsonUsage)
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		_, settings, err := config(*conf)
		if err != nil {
			return err
		}
		r := newReport(settings)
		if *asJSON {
			return json.NewEncoder(cmd.OutOrStdout()).Encode(r)
		}
		return r.print(cmd.OutOrStdout())
	}
	return c
}

// report is what info shows. Sizes are in bytes.
type report struct {
	Go, System, Processor string
	Host                  hostReport
	CUDA                  cudaReport
	Settings              []cupool.Setting
}

// hostReport is of the device that is the computer's own memory.
type hostReport struct {
	Error                                 string `json:",omitempty"` // why there is nothing else
	Name                                  string
	FreeBytes, TotalBytes, VMMGranularity int64
}

// cudaReport is of the driver and its GPUs.
type cudaReport struct {
	Error    string   `json:",omitempty"` // why there is nothing else
	Driver   int      // the newest CUDA that it is for: 1000 * major + 10 * minor
	Missing  []string `json:",omitempty"` // what the driver lacks
	GPUError string   `json:",omitempty"` // why GPUs are not listed
	GPUs     []cuda.Device
}

func newReport(settings []cupool.Setting) *report {
	r := &report{Go: runtime.Version(), System: runtime.GOOS, Processor: runtime.GOARCH, Settings: settings}
	if err := r.Host.look(); err != nil {
		r.Host.Error = err.Error()
	}
	v, err := cuda.Version()
	if err != nil {
		r.CUDA.Error = err.Error()
		return r
	}
	r.CUDA.Driver, r.CUDA.Missing = v.Driver, v.Missing
	if r.CUDA.GPUs, err = cuda.Devices(); err != nil {
		r.CUDA.GPUError = err.Error()
	}
	return r
}

func (h *hostReport) look() error {
	d, err := cupool.Open("host")
	if err != nil {
		return err
	}
	defer d.Close()
	if h.FreeBytes, h.TotalBytes, err = d.MemInfo(); err != nil {
		return err
	}
	h.Name = d.Name()
	if v, ok := d.(interface{ VMMGranularity() int64 }); ok {
		h.VMMGranularity = v.VMMGranularity()
	}
	return nil
}

func (r *report) print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "go\t%s %s/%s\n", r.Go, r.System, r.Processor)
	if h := &r.Host; h.Error != "" {
		fmt.Fprintf(w, "host device\t%s\n", h.Error)
	} else {
		fmt.Fprintf(w, "host device\t%s, %s free of %s, virtual memory: %s\n", h.Name, bytesize.Format(h.FreeBytes), bytesize.Format(h.TotalBytes), granularity(h.VMMGranularity))
	}
	switch c := &r.CUDA; {
	case c.Error != "":
		fmt.Fprintf(w, "CUDA driver\t%s\n", c.Error)
	default:
		fmt.Fprintf(w, "CUDA driver\tfor CUDA %d.%d\n", c.Driver/1000, c.Driver%1000/10)
		if len(c.Missing) > 0 {
			fmt.Fprintf(w, "the driver lacks\t%s\n", strings.Join(c.Missing, ", "))
		}
		if c.GPUError != "" {
			fmt.Fprintf(w, "GPUs\t%s\n", c.GPUError)
		}
		for _, g := range c.GPUs {
			infoGPU(w, g)
		}
	}
	printSettings(w, r.Settings)
	return w.Flush()
}

// granularity is that of virtual memory, or no.
func granularity(n int64) string {
	if n <= 0 {
		return "no"
	}
	return bytesize.Format(n) + " granularity"
}

func infoGPU(w io.Writer, g cuda.Device) {
	free, virtual := "unknown", "unknown" // where no context could be made
	if g.FreeBytes >= 0 {
		free, virtual = bytesize.Format(g.FreeBytes), granularity(g.VMMGranularity)
	}
	fmt.Fprintf(w, "cuda:%d\t%s, compute capability %d.%d, %d multiprocessors\n", g.Ordinal, g.Name, g.Major, g.Minor, g.Multiprocessors)
	fmt.Fprintf(w, "\t%s\n", g.UUID)
	fmt.Fprintf(w, "\tmemory: %s free of %s\n", free, bytesize.Format(g.TotalBytes))
	fmt.Fprintf(w, "\tvirtual memory: %s\n", virtual)
	fmt.Fprintf(w, "\tnative pools: %s\n", yes(g.NativePools))
	managed := yes(g.Managed)
	if g.Managed && !g.ConcurrentManagedAccess {
		managed = "yes, but not while kernels run"
	}
	fmt.Fprintf(w, "\tmanaged memory: %s\n", managed)
	fmt.Fprintf(w, "\treads pageable host memory: %s\n", yes(g.PageableAccess))
	fmt.Fprintf(w, "\tsharing between processes: %s\n", sharing(g))
}

func sharing(g cuda.Device) string {
	var kinds []string
	for _, k := range []struct {
		has  bool
		name string
	}{
		{g.ShareFD, "virtual memory by file descriptor"},
		{g.PoolShareFD, "native pools by file descriptor"},
		{g.ShareFabric, "virtual memory by fabric"},
		{g.IPCEvents, "events"},
	} {
		if k.has {
			kinds = append(kinds, k.name)
		}
	}
	if len(kinds) == 0 {
		return "no"
	}
	return strings.Join(kinds, ", ")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
