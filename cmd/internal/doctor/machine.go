package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cupool/cupool/internal/cudalibs"
)

// A Machine is the computer to look at. The zero Machine is this one.
type Machine struct {
	OS     string                                  // "": runtime.GOOS
	Root   string                                  // in front of all paths
	Getenv func(string) string                     // nil: os.Getenv
	Open   func(path string) error                 // nil: opens a file for reading and writing
	Run    func(string, ...string) ([]byte, error) // nil: runs a program and returns what it prints

	CUDA CUDA
}

// standIn is the library that is opened in place of the driver's.
func (m Machine) standIn() string { return m.getenv(cudalibs.Driver) }

// wsl reports whether this is Linux in Windows.
func (m Machine) wsl() bool {
	return strings.Contains(strings.ToLower(m.read("/proc/sys/kernel/osrelease")), "microsoft")
}

var inContainer = regexp.MustCompile(`docker|containerd|kubepods|libpod|lxc`)

// container reports whether this is a container, such as Docker's or Podman's.
func (m Machine) container() bool {
	return m.exists("/.dockerenv") || m.exists("/run/.containerenv") || inContainer.MatchString(m.read("/proc/1/cgroup"))
}

// onBus reports whether a display controller of NVIDIA's is on the PCI bus.
func (m Machine) onBus() bool {
	return slices.ContainsFunc(m.glob("/sys/bus/pci/devices/*/vendor"), func(vendor string) bool {
		class := m.read(filepath.Join(filepath.Dir(vendor), "class"))
		return m.read(vendor) == "0x10de" && strings.HasPrefix(class, "0x03")
	})
}

// files is about the files that the driver's library opens. Where there are GPUs,
// one that cannot be opened is of another GPU, which a scheduler may keep back.
func (m Machine) files(gpus int) []Line {
	var paths []string
	switch {
	case m.standIn() != "" || m.os() != "linux":
		return nil
	case m.wsl():
		paths = []string{"/dev/dxg"}
	case m.exists("/dev/nvidiactl"):
		paths = append([]string{"/dev/nvidiactl", "/dev/nvidia-uvm"}, m.glob("/dev/nvidia[0-9]*")...)
	}
	var bad []Line
	for _, path := range paths {
		if l := m.file(path); l.missing() {
			if gpus > 0 {
				l.Verdict = Advice
			}
			bad = append(bad, l)
		}
	}
	if len(bad) == 0 && len(paths) > 0 {
		bad = append(bad, Line{Good, "device files", "can be read and written", ""})
	}
	return bad
}

// file is about one of these files.
func (m Machine) file(path string) Line {
	const subject = "device files"
	err := m.open(path)
	switch {
	case err == nil:
		return Line{Good, subject, path, ""}
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission):
		return Line{Missing, subject, err.Error(), restart}
	case m.container():
		return Line{Missing, subject, path + " cannot be opened in this container", container}
	case errors.Is(err, fs.ErrNotExist):
		return Line{Missing, subject, path + " is not there", "sudo nvidia-modprobe -u -c 0"}
	}
	out, err := m.run("stat", "-c", "%G", m.Root+path)
	group := strings.TrimSpace(string(out))
	if err != nil || group == "root" || group == "" {
		return Line{Missing, subject, path + " cannot be opened by you", "sudo chmod a+rw " + path}
	}
	return Line{Missing, subject, path + " can only be opened by the group " + group, "sudo usermod -aG " + group + " $USER, then log in again"}
}

// loaded returns the path of a library that this process has opened by a name or
// path, such as libcuda.so.1; where the system does not tell, that name.
func (m Machine) loaded(name string) string {
	stem, _, _ := strings.Cut(filepath.Base(name), ".")
	for line := range strings.Lines(m.read("/proc/self/maps")) {
		if i := strings.IndexByte(line, '/'); i > 0 && strings.HasPrefix(filepath.Base(line), stem+".so") {
			return strings.TrimSpace(line[i:])
		}
	}
	return name
}

// The rest is how the machine is reached.

func (m Machine) os() string {
	if m.OS != "" {
		return m.OS
	}
	return runtime.GOOS
}

func (m Machine) getenv(name string) string {
	if m.Getenv != nil {
		return m.Getenv(name)
	}
	return os.Getenv(name)
}

// read returns a small file without its last newline; "" when there is none.
func (m Machine) read(path string) string {
	b, err := os.ReadFile(m.Root + path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (m Machine) exists(path string) bool {
	_, err := os.Stat(m.Root + path)
	return err == nil
}

// glob returns paths without Root.
func (m Machine) glob(pattern string) []string {
	found, _ := filepath.Glob(m.Root + pattern)
	for i, f := range found {
		found[i] = strings.TrimPrefix(f, m.Root)
	}
	return found
}

func (m Machine) open(path string) error {
	if m.Open != nil {
		return m.Open(path)
	}
	f, err := os.OpenFile(m.Root+path, os.O_RDWR, 0)
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
