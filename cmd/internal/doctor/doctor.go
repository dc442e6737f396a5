// Package doctor looks at what a computer has, and what it lacks, to build and
// run programs with CUDA. It needs no CUDA itself, and changes nothing.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cupool/cupool/internal/cudatoolkit"
)

// A Verdict is what a Line means.
type Verdict int

const (
	Good    Verdict = iota
	Advice          // programs run, but better, or with more, after what Do says
	Missing         // programs do not build or do not run
)

// A Line is one thing that was looked at.
type Line struct {
	Verdict Verdict
	Subject string
	Text    string // what is there
	Do      string // what to do about it; "" when Good
}

func (l Line) good() bool { return l.Verdict == Good }

// A Machine is the computer to look at. The zero Machine is this one.
type Machine struct {
	cudatoolkit.System                                         // its Root is in front of all paths
	Open               func(path string) error                 // nil: opens a file for reading and writing
	Run                func(string, ...string) ([]byte, error) // nil: runs a program and returns what it prints
}

// Examine looks at everything, in the order in which things depend on each
// other.
func (m Machine) Examine() []Line {
	lines := []Line{m.compiler(), m.headers()}
	sys := m.system()
	lines = append(lines, sys)
	if sys.Verdict == Missing {
		return lines
	}
	gpus := m.gpus()
	lines = append(lines, gpus)
	if gpus.Verdict == Missing {
		return lines
	}
	lines = append(lines, m.driver()...)
	lines = append(lines, m.permissions()...)
	lines = append(lines, m.state()...)
	return append(lines, m.libraries()...)
}

func (m Machine) compiler() Line {
	cc, err := m.Compiler()
	if err != nil {
		return Line{Missing, "compiler", "none", err.Error()}
	}
	version, err := m.run(cc[0], append(cc[1:], "--version")...)
	if err != nil {
		return Line{Missing, "compiler", fmt.Sprintf("%s does not run: %v", cc[0], err), "install gcc, or name another one in CC"}
	}
	line, _, _ := strings.Cut(string(version), "\n")
	return Line{Good, "compiler", line, ""}
}

func (m Machine) headers() Line {
	if t, err := m.Find(""); err == nil {
		return Line{Good, "headers", "CUDA " + t.VersionString() + " in " + t.Root, ""}
	}
	return Line{Good, "headers", "cupool's own; no toolkit is here, and none is needed", ""}
}

// system is about the operating system.
func (m Machine) system() Line {
	const subject = "system"
	if m.Root == "" && runtime.GOOS != "linux" {
		return Line{Missing, subject, runtime.GOOS, "builds with -tags gpu need Linux, also in WSL 2; without the tag everything runs on the host device"}
	}
	release := m.read("/proc/sys/kernel/osrelease")
	switch {
	case !m.wsl():
		return Line{Good, subject, "Linux " + release + ", no WSL", ""}
	case strings.HasSuffix(release, "-Microsoft"): // WSL 2 spells it otherwise
		return Line{Missing, subject, "WSL 1, which has no GPUs", "in PowerShell: wsl --set-version DISTRIBUTION 2"}
	}
	return Line{Good, subject, "WSL 2 (" + release + "): the driver is the one of Windows", ""}
}

// wsl reports whether this is Linux in Windows.
func (m Machine) wsl() bool {
	return strings.Contains(strings.ToLower(m.read("/proc/sys/kernel/osrelease")), "microsoft")
}

// container reports whether this is a container of Docker or Podman.
func (m Machine) container() bool {
	return m.exists("/.dockerenv") || m.exists("/run/.containerenv")
}

const containerHint = "start the container with --gpus all (NVIDIA's container toolkit), and with NVIDIA_DRIVER_CAPABILITIES=compute,utility"

// gpus is about whether there is one at all.
func (m Machine) gpus() Line {
	const subject = "GPU"
	if m.wsl() {
		if m.exists("/dev/dxg") {
			return Line{Good, subject, "/dev/dxg", ""}
		}
		return Line{Missing, subject, "none: there is no /dev/dxg", "install NVIDIA's driver for Windows, then wsl --update"}
	}
	if files := m.glob("/dev/nvidia[0-9]*"); len(files) > 0 {
		return Line{Good, subject, strings.Join(files, " "), ""}
	}
	const without = "; without -tags gpu everything runs on the host device"
	switch {
	case m.container():
		return Line{Missing, subject, "none in this container", containerHint + without}
	case m.onBus():
		return Line{Missing, subject, "an NVIDIA GPU, but no /dev/nvidia0", "install NVIDIA's driver (https://www.nvidia.com/drivers), or load it: sudo modprobe nvidia" + without}
	}
	return Line{Missing, subject, "no NVIDIA GPU", "run programs where there is one" + without}
}

// onBus reports whether a display controller of NVIDIA's is on the PCI bus.
func (m Machine) onBus() bool {
	for _, vendor := range m.glob("/sys/bus/pci/devices/*/vendor") {
		class := m.read(filepath.Join(filepath.Dir(vendor), "class"))
		if m.read(vendor) == "0x10de" && strings.HasPrefix(class, "0x03") {
			return true
		}
	}
	return false
}

// permissions is about the files that the driver's library opens.
func (m Machine) permissions() []Line {
	if m.wsl() {
		return []Line{m.device("/dev/dxg")}
	}
	lines := []Line{m.device("/dev/nvidiactl"), m.device("/dev/nvidia-uvm")}
	var gpus []Line
	for _, path := range m.glob("/dev/nvidia[0-9]*") {
		gpus = append(gpus, m.device(path))
	}
	if slices.ContainsFunc(gpus, Line.good) {
		for i := range gpus { // one is enough; a scheduler may keep others back
			gpus[i].Verdict = min(gpus[i].Verdict, Advice)
		}
	}
	lines = slices.DeleteFunc(append(lines, gpus...), Line.good)
	if len(lines) == 0 {
		lines = append(lines, Line{Good, "device files", "can be read and written", ""})
	}
	return lines
}

// device is about one of these files.
func (m Machine) device(path string) Line {
	const subject = "device files"
	err := m.open(path)
	switch {
	case err == nil:
		return Line{Good, subject, path + " can be read and written", ""}
	case errors.Is(err, fs.ErrNotExist) && m.container():
		return Line{Missing, subject, path + " is not there", containerHint}
	case errors.Is(err, fs.ErrNotExist):
		return Line{Missing, subject, path + " is not there", "sudo nvidia-modprobe -u -c 0"}
	case errors.Is(err, fs.ErrPermission):
		return Line{Missing, subject, path + " is not yours to read and write", "join the group that owns it (ls -l " + path + "; sudo usermod -aG GROUP $USER, then log in again), or sudo chmod a+rw " + path}
	}
	return Line{Missing, subject, err.Error(), "dmesg and nvidia-smi may say why; a restart loads the driver again"}
}

// The rest is how the machine is reached.

func (m Machine) path(p string) string { return m.Root + p }

// read returns a small file without its last newline; "" when there is none.
func (m Machine) read(path string) string {
	b, err := os.ReadFile(m.path(path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (m Machine) exists(path string) bool {
	_, err := os.Stat(m.path(path))
	return err == nil
}

// glob returns paths without Root.
func (m Machine) glob(pattern string) []string {
	found, _ := filepath.Glob(m.path(pattern))
	for i, f := range found {
		found[i] = strings.TrimPrefix(f, m.Root)
	}
	return found
}

func (m Machine) open(path string) error {
	if m.Open != nil {
		return m.Open(path)
	}
	f, err := os.OpenFile(m.path(path), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// patience is how long a program may take: nvidia-smi hangs with some broken
// drivers.
const patience = 20 * time.Second

func (m Machine) run(name string, args ...string) ([]byte, error) {
	if m.Run != nil {
		return m.Run(name, args...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return exec.CommandContext(ctx, name, args...).Output()
}
