package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/cudatoolkit"
)

// fixture is a computer in a temporary directory. newFixture makes one where
// everything is good.
type fixture struct {
	t    *testing.T
	root string
	vars map[string]string
	look map[string]bool
	open map[string]error
	smi  func(name string) ([]byte, error)
	cc   error
}

const goodGPU = "0, NVIDIA H200, 143000, 143771, Enabled, Disabled, Enabled, Default\n"

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, root: t.TempDir(), vars: map[string]string{}, look: map[string]bool{"gcc": true}, open: map[string]error{}}
	f.smi = func(string) ([]byte, error) { return []byte(goodGPU), nil }
	f.file("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
	f.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: gcc 12.3.0\n")
	for _, dev := range []string{"nvidia0", "nvidiactl", "nvidia-uvm"} {
		f.file("/dev/"+dev, "")
	}
	f.library("580.65.06")
	f.file("/usr/lib64/libcublas.so.13", "")
	return f
}

func (f *fixture) file(path, text string) {
	f.t.Helper()
	path = filepath.Join(f.root, path)
	require.NoError(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(f.t, os.WriteFile(path, []byte(text), 0o644))
}

func (f *fixture) remove(paths ...string) {
	f.t.Helper()
	for _, path := range paths {
		require.NoError(f.t, os.RemoveAll(filepath.Join(f.root, path)))
	}
}

// library installs the driver's library of a version.
func (f *fixture) library(version string) {
	f.t.Helper()
	f.file("/usr/lib64/libcuda.so."+version, "")
	f.remove("/usr/lib64/libcuda.so.1")
	require.NoError(f.t, os.Symlink("libcuda.so."+version, filepath.Join(f.root, "/usr/lib64/libcuda.so.1")))
}

// wsl makes it a Linux in Windows.
func (f *fixture) wsl() {
	f.t.Helper()
	f.file("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
	f.remove("/dev", "/proc/driver", "/usr/lib64/libcuda.so.1")
	f.file("/dev/dxg", "")
	f.file("/usr/lib/wsl/lib/libcuda.so.1", "")
}

func (f *fixture) examine() []Line {
	return Machine{
		System: cudatoolkit.System{
			Root:   f.root,
			Getenv: func(name string) string { return f.vars[name] },
			Look: func(name string) (string, error) {
				if f.look[name] {
					return "/usr/bin/" + name, nil
				}
				return "", fs.ErrNotExist
			},
		},
		Open: func(path string) error {
			if err := f.open[path]; err != nil {
				return err
			}
			_, err := os.Stat(filepath.Join(f.root, path))
			return err
		},
		Run: func(name string, _ ...string) ([]byte, error) {
			if strings.HasSuffix(name, "nvidia-smi") {
				return f.smi(name)
			}
			return []byte("gcc 12.2.0\nCopyright\n"), f.cc
		},
	}.Examine()
}

// Each case spoils one thing of a good machine: the lines that are not good
// are those of the thing.
func TestExamine(t *testing.T) {
	smi := func(row string) func(string) ([]byte, error) {
		return func(string) ([]byte, error) { return []byte(row), nil }
	}
	type lines []Line
	for name, c := range map[string]struct {
		set  func(f *fixture)
		want lines // Text and Do are parts
	}{
		"all good":          {func(f *fixture) {}, nil},
		"no compiler":       {func(f *fixture) { f.look = nil }, lines{{Missing, "compiler", "none", "install gcc"}}},
		"a broken compiler": {func(f *fixture) { f.cc = errors.New("exec format error") }, lines{{Missing, "compiler", "does not run: exec format", "install gcc"}}},
		"a computer without a GPU": {func(f *fixture) { f.remove("/dev") },
			lines{{Missing, "GPU", "no NVIDIA GPU", "without -tags gpu everything runs"}}},
		"a GPU without a driver": {func(f *fixture) {
			f.remove("/dev")
			f.file("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
			f.file("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
		}, lines{{Missing, "GPU", "no /dev/nvidia0", "install NVIDIA's driver"}}},
		"a sound device of NVIDIA's": {func(f *fixture) {
			f.remove("/dev")
			f.file("/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n")
			f.file("/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n")
		}, lines{{Missing, "GPU", "no NVIDIA GPU", ""}}},
		"a container without GPUs": {func(f *fixture) { f.remove("/dev"); f.file("/.dockerenv", "") },
			lines{{Missing, "GPU", "none in this container", "--gpus all"}}},
		"a container without the library": {func(f *fixture) { f.file("/run/.containerenv", ""); f.remove("/usr/lib64/libcuda.so.1") },
			lines{{Missing, "driver's library", "not there", "NVIDIA_DRIVER_CAPABILITIES"}}},
		"no library":   {func(f *fixture) { f.remove("/usr/lib64/libcuda.so.1") }, lines{{Missing, "driver's library", "libcuda.so.1", "install NVIDIA's driver"}}},
		"no module":    {func(f *fixture) { f.remove("/proc/driver") }, lines{{Advice, "driver", "unknown version", "modprobe"}}},
		"two versions": {func(f *fixture) { f.library("590.10") }, lines{{Missing, "driver", "module is 580.65.06, the library 590.10", "restart"}}},
		"an old driver": {func(f *fixture) {
			f.file("/proc/driver/nvidia/version", "Kernel Module  470.57.02")
			f.library("470.57.02")
		}, lines{{Advice, "driver", "470.57.02", "install 525"}}},
		"a very old driver": {func(f *fixture) {
			f.file("/proc/driver/nvidia/version", "Kernel Module  390.157")
			f.library("390.157")
		},
			lines{{Missing, "driver", "390.157", "install 525"}}},
		"not permitted": {func(f *fixture) { f.open["/dev/nvidia0"] = fs.ErrPermission },
			lines{{Missing, "device files", "/dev/nvidia0 is not yours", "usermod"}}},
		"two not permitted": {func(f *fixture) {
			f.open["/dev/nvidia0"], f.open["/dev/nvidiactl"] = fs.ErrPermission, fs.ErrPermission
		}, lines{{Missing, "device files", "/dev/nvidiactl", ""}, {Missing, "device files", "/dev/nvidia0", ""}}},
		"one of two": {func(f *fixture) { f.file("/dev/nvidia1", ""); f.open["/dev/nvidia0"] = fs.ErrPermission },
			lines{{Advice, "device files", "/dev/nvidia0 is not yours", ""}}},
		"no nvidia-uvm":   {func(f *fixture) { f.remove("/dev/nvidia-uvm") }, lines{{Missing, "device files", "/dev/nvidia-uvm is not there", "nvidia-modprobe"}}},
		"a broken device": {func(f *fixture) { f.open["/dev/nvidia0"] = errors.New("input/output error") }, lines{{Missing, "device files", "input/output error", "dmesg"}}},
		"no nvidia-smi":   {func(f *fixture) { f.smi = func(string) ([]byte, error) { return nil, fs.ErrNotExist } }, lines{{Advice, "state of the GPU", "nvidia-smi fails", "comes with the driver"}}},
		"nvidia-smi says why": {func(f *fixture) {
			f.smi = func(string) ([]byte, error) {
				return []byte("NVIDIA-SMI has failed.\nMake sure\n"), errors.New("exit status 9")
			}
		}, lines{{Advice, "state of the GPU", "fails: NVIDIA-SMI has failed.", ""}}},
		"other output": {func(f *fixture) { f.smi = smi("No devices were found\n") }, lines{{Advice, "state of the GPU", "something else", ""}}},
		"full":         {func(f *fixture) { f.smi = smi("0, A, 100, 143771, Enabled, Disabled, Enabled, Default\n") }, lines{{Advice, "GPU 0 memory", "100 MiB free of", "nvidia-smi lists them"}}},
		"settings": {func(f *fixture) { f.smi = smi(goodGPU + "1, B, 1000, 2000, Disabled, Enabled, Disabled, Prohibited\n") },
			lines{{Advice, "GPU 1 persistence", "disabled", "-pm 1"}, {Advice, "GPU 1 MIG", "enabled", "CUDA_VISIBLE_DEVICES"},
				{Advice, "GPU 1 ECC", "disabled", "-e 1"}, {Missing, "GPU 1 compute mode", "prohibited", "-c 0"}}},
		"a GPU without settings": {func(f *fixture) { f.smi = smi("0, GeForce, [N/A], [N/A], [N/A], [N/A], [N/A], [Not Supported]\n") }, nil},
		"no cuBLAS":              {func(f *fixture) { f.remove("/usr/lib64/libcublas.so.13") }, lines{{Advice, "cuBLAS", "not found", "pip install nvidia-cublas"}}},
		"WSL 2":                  {func(f *fixture) { f.wsl() }, nil},
		"WSL 2, no GPU":          {func(f *fixture) { f.wsl(); f.remove("/dev/dxg") }, lines{{Missing, "GPU", "/dev/dxg", "wsl --update"}}},
		"WSL 2, no library":      {func(f *fixture) { f.wsl(); f.remove("/usr/lib/wsl") }, lines{{Missing, "driver's library", "not there", "none for Linux"}}},
		"WSL 1":                  {func(f *fixture) { f.wsl(); f.file("/proc/sys/kernel/osrelease", "4.4.0-19041-Microsoft") }, lines{{Missing, "system", "WSL 1", "--set-version"}}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			c.set(f)
			var bad lines
			for _, l := range f.examine() {
				assert.NotEmpty(t, l.Text, l.Subject)
				if l.Verdict == Good {
					assert.Empty(t, l.Do, l.Subject)
					continue
				}
				assert.NotEmpty(t, l.Do, l.Subject)
				bad = append(bad, l)
			}
			require.Len(t, bad, len(c.want), fmt.Sprint(bad))
			for i, want := range c.want {
				assert.Equal(t, want.Verdict, bad[i].Verdict)
				assert.Equal(t, want.Subject, bad[i].Subject)
				assert.Contains(t, bad[i].Text, want.Text)
				assert.Contains(t, bad[i].Do, want.Do)
			}
		})
	}
}

// What a good machine has is said, too.
func TestExamineGood(t *testing.T) {
	f := newFixture(t)
	f.file("/usr/local/cuda/include/cuda.h", "#define CUDA_VERSION 13000\n")
	f.file("/usr/lib64/libnccl.so.2", "")
	texts := map[string]string{}
	for _, l := range f.examine() {
		texts[l.Subject] = l.Text
	}
	for subject, text := range map[string]string{
		"compiler": "gcc 12.2.0", "headers": "CUDA 13.0 in " + f.root, "system": "no WSL", "GPU": "/dev/nvidia0", "driver": "580.65.06",
		"driver's library": "libcuda.so.1", "device files": "can be read", "GPU 0": "NVIDIA H200", "GPU 0 memory": "free of 140",
		"GPU 0 persistence": "enabled", "GPU 0 MIG": "disabled", "GPU 0 ECC": "enabled", "cuBLAS": "libcublas.so.13", "NCCL": "libnccl.so.2",
	} {
		assert.Contains(t, texts[subject], text, subject)
	}
}

// In WSL, nvidia-smi is where PATH need not lead.
func TestExamineWSLTool(t *testing.T) {
	f := newFixture(t)
	f.wsl()
	f.smi = func(name string) ([]byte, error) {
		if name == "nvidia-smi" {
			return nil, fs.ErrNotExist
		}
		assert.Equal(t, filepath.Join(f.root, "/usr/lib/wsl/lib/nvidia-smi"), name)
		return []byte(goodGPU), nil
	}
	for _, l := range f.examine() {
		assert.Equal(t, Good, l.Verdict, l)
	}
}

// This computer can be looked at, whatever it has.
func TestExamineHere(t *testing.T) {
	assert.NotEmpty(t, Machine{}.Examine())
}
