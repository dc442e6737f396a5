package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/bytesize"
)

const infoText = `Shows the devices of this computer, their memory, the driver's version and what
is supported, and the settings of the allocator in effect with where each comes
from: from -conf, from the environment (` + cupool.AllocConf + `, or CUPOOL_LIMIT and the
like for one) or by default. Works without CUDA and
without a GPU too.`

// runInfo prints the report.
func runInfo(_ context.Context, args []string, stdout, stderr io.Writer) error {
	fs := newFlags("info", "", infoText)
	conf := fs.String("conf", "", confUsage)
	if err := parseAlone(fs, args, stderr); err != nil {
		return err
	}
	_, settings, err := config(*conf)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "go\t%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	infoHost(w)
	infoCUDA(w)
	printSettings(w, settings)
	return w.Flush()
}

func infoHost(w io.Writer) {
	d, err := cupool.Open("host")
	if err != nil {
		fmt.Fprintf(w, "host device\t%v\n", err)
		return
	}
	defer d.Close()
	free, total, err := d.MemInfo()
	if err != nil {
		fmt.Fprintf(w, "host device\t%v\n", err)
		return
	}
	vmm := "no"
	if v, ok := d.(interface{ VMMGranularity() int64 }); ok && v.VMMGranularity() > 0 {
		vmm = bytesize.Format(v.VMMGranularity()) + " granularity"
	}
	fmt.Fprintf(w, "host device\t%s, %s free of %s, virtual memory: %s\n", d.Name(), bytesize.Format(free), bytesize.Format(total), vmm)
}

func infoCUDA(w io.Writer) {
	v, err := cuda.Version()
	if err != nil {
		fmt.Fprintf(w, "CUDA driver\t%v\n", err)
		return
	}
	fmt.Fprintf(w, "CUDA driver\tfor CUDA %d.%d\n", v.Driver/1000, v.Driver%1000/10)
	if len(v.Missing) > 0 {
		fmt.Fprintf(w, "the driver lacks\t%s\n", strings.Join(v.Missing, ", "))
	}
	gpus, err := cuda.Devices()
	if err != nil {
		fmt.Fprintf(w, "GPUs\t%v\n", err)
		return
	}
	for _, g := range gpus {
		infoGPU(w, g)
	}
}

func infoGPU(w io.Writer, g cuda.Device) {
	free := "unknown"
	if g.FreeBytes >= 0 {
		free = bytesize.Format(g.FreeBytes)
	}
	fmt.Fprintf(w, "cuda:%d\t%s, compute capability %d.%d, %d multiprocessors\n", g.Ordinal, g.Name, g.Major, g.Minor, g.Multiprocessors)
	fmt.Fprintf(w, "\t%s\n", g.UUID)
	fmt.Fprintf(w, "\tmemory: %s free of %s\n", free, bytesize.Format(g.TotalBytes))
	vmm := "no"
	if g.VMMGranularity > 0 {
		vmm = bytesize.Format(g.VMMGranularity) + " granularity"
	}
	fmt.Fprintf(w, "\tvirtual memory: %s\n", vmm)
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
