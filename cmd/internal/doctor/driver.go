package doctor

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Drivers older than oldest are not supported. Those before whole lack
// functions of gorgonia.org/cu: programs start, and end where they call one.
const (
	oldest = 450 // CUDA 11.0
	whole  = 525 // CUDA 12.0
)

var (
	moduleVersion  = regexp.MustCompile(`Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)`)
	libraryVersion = regexp.MustCompile(`\.so\.(\d+\.\d+(?:\.\d+)?)$`)
)

// driver is about the driver's library and the kernel's module, which have to
// be of the same version.
func (m Machine) driver() []Line {
	lib := m.Library("libcuda.so.1")
	if lib == "" {
		do := "install NVIDIA's driver (https://www.nvidia.com/drivers), or put the directory of libcuda.so.1 in LD_LIBRARY_PATH"
		switch {
		case m.container():
			do = containerHint
		case m.wsl():
			do = "install NVIDIA's driver for Windows, and none for Linux; it puts libcuda.so.1 in /usr/lib/wsl/lib"
		}
		return []Line{{Missing, "driver's library", "libcuda.so.1 is not there", do}}
	}
	lines := []Line{{Good, "driver's library", lib, ""}}
	if m.wsl() {
		return lines // the module is Windows'
	}
	module := first(moduleVersion, m.read("/proc/driver/nvidia/version"))
	if module == "" {
		return append(lines, Line{Advice, "driver", "of an unknown version: there is no /proc/driver/nvidia/version", "sudo modprobe nvidia, if programs do not start"})
	}
	if real, err := filepath.EvalSymlinks(lib); err == nil {
		if v := first(libraryVersion, real); v != "" && v != module {
			return append(lines, Line{Missing, "driver", fmt.Sprintf("the kernel's module is %s, the library %s", module, v), "restart the computer, which loads the module of the library's version"})
		}
	}
	major, _ := strconv.Atoi(module[:strings.IndexByte(module, '.')])
	switch {
	case major < oldest:
		lines = append(lines, Line{Missing, "driver", module, fmt.Sprintf("install %d or newer (https://www.nvidia.com/drivers)", whole)})
	case major < whole:
		lines = append(lines, Line{Advice, "driver", module, fmt.Sprintf("install %d or newer: this one lacks functions of gorgonia.org/cu; build and link with a CUDA 11 toolkit otherwise (cupool env -cuda DIR)", whole)})
	default:
		lines = append(lines, Line{Good, "driver", module, ""})
	}
	return lines
}

func first(re *regexp.Regexp, s string) string {
	if m := re.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}

// libraries is about what programs load besides.
func (m Machine) libraries() []Line {
	lines := []Line{{Advice, "cuBLAS", "not found; products of matrices are slower without it",
		"pip install nvidia-cublas (before driver 580: nvidia-cublas-cu12), or install it from the CUDA toolkit"}}
	if path := m.Library("libcublas.so.*"); path != "" {
		lines[0] = Line{Good, "cuBLAS", path, ""}
	}
	nccl := Line{Good, "NCCL", "not found; one GPU needs none", ""}
	if path := m.Library("libnccl.so.*"); path != "" {
		nccl.Text = path
	}
	return append(lines, nccl)
}
