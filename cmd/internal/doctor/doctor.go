// Package doctor looks at what a computer has, and what it lacks, to run programs
// on its GPUs. It needs no GPU itself, and changes nothing.
package doctor

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/cudalibs"
)

// A Verdict is what a Line means.
type Verdict int

const (
	Good    Verdict = iota
	Advice          // programs run, but better, or with more, after what Do says
	Missing         // programs do not run on a GPU
)

func (v Verdict) String() string { return [...]string{"good", "advice", "MISSING"}[v] }

// MarshalText returns the verdict as String does, for JSON.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// A Line is one thing that was looked at.
type Line struct {
	Verdict Verdict
	Subject string
	Text    string // what is there
	Do      string // what to do about it; "" when Good
}

func (l Line) missing() bool { return l.Verdict == Missing }

const (
	install   = "install NVIDIA's driver (https://www.nvidia.com/drivers)"
	container = "docker run --gpus all, with NVIDIA's container toolkit on the host"
	restart   = "restart the computer, which loads the driver again; dmesg may say more"
	oldest    = 11000     // the version of CUDA that a driver has to serve
	scarce    = 512 << 20 // bytes of free memory that are so few that programs fail
)

// Examine looks at everything, in the order in which things depend on each
// other.
func (m Machine) Examine() []Line {
	sys := m.system()
	lines := []Line{sys}
	if sys.missing() {
		return lines
	}
	if path := m.standIn(); path != "" {
		lines = append(lines, Line{Advice, cudalibs.Driver, path + " is used in place of the driver's library, as in tests", "unset it to use this computer's GPUs"})
	}
	c := m.CUDA.orHere()
	v, err := c.Version()
	if err != nil || v.Driver == 0 {
		return append(lines, m.cause(false, err))
	}
	gpus, err := c.Devices()
	lines = append(append(lines, m.driver(v)), m.files(len(gpus))...)
	if err != nil || len(gpus) == 0 {
		if !slices.ContainsFunc(lines, Line.missing) {
			lines = append(lines, m.cause(true, err))
		}
		return lines
	}
	for _, g := range gpus {
		lines = append(lines, gpu(g))
	}
	if m.standIn() == "" {
		lines = append(lines, m.mig()...)
		lines = append(lines, m.processes()...)
	}
	return append(lines, m.blas(c, v, gpus[0]), m.nccl(c, v, len(gpus)))
}

// system is about the operating system.
func (m Machine) system() Line {
	const subject = "system"
	release := m.read("/proc/sys/kernel/osrelease")
	switch {
	case m.os() == "windows":
		return Line{Good, subject, "Windows", ""}
	case m.os() != "linux":
		return Line{Missing, subject, m.os(), "run programs on Linux or Windows to use a GPU; everything runs on the host device here"}
	case !m.wsl():
		return Line{Good, subject, "Linux " + release, ""}
	case strings.HasSuffix(release, "-Microsoft"): // WSL 2 spells it otherwise
		return Line{Missing, subject, "WSL 1, which has no GPUs", "in PowerShell: wsl --set-version DISTRIBUTION 2"}
	}
	return Line{Good, subject, "WSL 2 (" + release + "): the driver is the one of Windows", ""}
}

// driver is about a driver's library that was opened.
func (m Machine) driver(v cuda.Versions) Line {
	text := fmt.Sprintf("for CUDA %d.%d", v.Driver/1000, v.Driver%1000/10)
	if module := m.module(); module != "" && m.standIn() == "" {
		text += ", version " + module
	}
	text += ", " + m.loaded(v.Library)
	switch {
	case v.Driver < oldest:
		return Line{Missing, "driver", text, "install 450 or newer (https://www.nvidia.com/drivers)"}
	case len(v.Missing) > 0:
		return Line{Advice, "driver", text + "; it lacks " + strings.Join(v.Missing, ", "), install + " that is newer, for what needs these calls"}
	}
	return Line{Good, "driver", text, ""}
}

// cause says why no driver was opened, or why an opened one has no GPUs. err is
// what CUDA says, if anything.
func (m Machine) cause(opened bool, err error) Line {
	says := "it has no GPUs"
	if err != nil {
		says = err.Error()
	}
	library := first(libraryVersion, m.loaded("libcuda.so.1"))
	switch {
	case m.standIn() != "":
		return Line{Missing, "driver", says, "unset " + cudalibs.Driver + ", or have it name a driver's library"}
	case m.os() == "windows" && !opened:
		return Line{Missing, "driver", "nvcuda.dll is not there", install}
	case m.wsl() && !m.exists("/dev/dxg"):
		return Line{Missing, "GPU", "none: there is no /dev/dxg", "install NVIDIA's driver for Windows, then wsl --update"}
	case m.wsl() && !opened:
		return Line{Missing, "driver", "libcuda.so.1 is not there", "install NVIDIA's driver for Windows, and none for Linux; it puts libcuda.so.1 in /usr/lib/wsl/lib"}
	case m.wsl() || m.os() == "windows":
		return Line{Missing, "GPU", says, "restart the computer; nvidia-smi may say more"}
	case m.container() && !m.exists("/dev/nvidiactl"):
		return Line{Missing, "GPU", "none in this container: there is no /dev/nvidiactl", container}
	case m.module() != "" && !opened && m.container():
		return Line{Missing, "driver", "libcuda.so.1 is not in this container", container + ", and with NVIDIA_DRIVER_CAPABILITIES=compute,utility"}
	case m.module() != "" && !opened:
		return Line{Missing, "driver", "the kernel's module is " + m.module() + ", but libcuda.so.1 is not there", "install the rest of this driver (Ubuntu and Debian have it in libnvidia-compute or libcuda1), or put its directory in LD_LIBRARY_PATH"}
	case m.module() == "" && m.onBus() && !opened:
		return Line{Missing, "driver", "there is an NVIDIA GPU without a driver", install}
	case m.module() == "" && m.onBus():
		return Line{Missing, "driver", "libcuda.so.1 is there, but the kernel's module is not loaded", "sudo modprobe nvidia; where that fails, dmesg says why"}
	case m.module() == "":
		return Line{Missing, "GPU", "no NVIDIA GPU", "run programs where there is one; everything runs on the host device here"}
	case library != "" && library != m.module():
		return Line{Missing, "driver", fmt.Sprintf("the kernel's module is %s, the library %s", m.module(), library), restart}
	}
	return Line{Missing, "GPU", says, restart}
}

var (
	moduleVersion  = regexp.MustCompile(`Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)`)
	libraryVersion = regexp.MustCompile(`\.so\.(\d+\.\d+(?:\.\d+)?)$`)
)

// module returns the version of the driver's part in the kernel; "" where it is
// not loaded.
func (m Machine) module() string { return first(moduleVersion, m.read("/proc/driver/nvidia/version")) }

func first(re *regexp.Regexp, s string) string {
	if m := re.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}

// gpu is about a GPU that CUDA has.
func gpu(g cuda.Device) Line {
	subject := fmt.Sprintf("cuda:%d", g.Ordinal)
	text := fmt.Sprintf("%s, compute capability %d.%d", g.Name, g.Major, g.Minor)
	if g.FreeBytes < 0 {
		return Line{Missing, subject, text + "; no context can be made on it", "nvidia-smi -q may say why: its compute mode, errors, or another program that holds all of its memory"}
	}
	text += fmt.Sprintf(", %s free of %s", bytesize.Format(g.FreeBytes), bytesize.Format(g.TotalBytes))
	if g.FreeBytes < scarce {
		return Line{Advice, subject, text, "end the processes that hold the rest, or choose another GPU by CUDA_VISIBLE_DEVICES"}
	}
	return Line{Good, subject, text, ""}
}

// blas is about what computes products of matrices, which is tried on a GPU.
func (m Machine) blas(c CUDA, v cuda.Versions, on cuda.Device) Line {
	const subject = "cuBLAS"
	l, err := c.CuBLAS()
	switch {
	case err == nil:
		return Line{Good, subject, l.Version + ", " + m.loaded(l.Name), ""}
	case !errors.Is(err, errMissing) && on.FreeBytes < scarce:
		return Line{Advice, subject, "it is there, and could not be tried: " + err.Error(), fmt.Sprintf("run this again when cuda:%d has free memory", on.Ordinal)}
	}
	name := "nvidia-cublas"
	if v.Driver < 13000 {
		name = fmt.Sprintf("nvidia-cublas-cu%d", v.Driver/1000)
	}
	return Line{Advice, subject, err.Error() + "; products of matrices are slower without it", "pip install " + name + ", or install it from the CUDA toolkit"}
}

// nccl is about what GPUs send to each other by.
func (m Machine) nccl(c CUDA, v cuda.Versions, gpus int) Line {
	const subject = "NCCL"
	l, err := c.NCCL()
	switch {
	case err == nil:
		return Line{Good, subject, l.Version + ", " + m.loaded(l.Name), ""}
	case gpus < 2:
		return Line{Good, subject, "not found; one GPU needs none", ""}
	}
	return Line{Advice, subject, err.Error() + "; ranks on several GPUs need it, but for dist.Local, which is slower", fmt.Sprintf("pip install nvidia-nccl-cu%d", min(v.Driver/1000, 13))}
}
