package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/cuda"
)

// fixture is a computer in a temporary directory. newFixture makes one where
// everything is good.
type fixture struct {
	t       *testing.T
	os      string
	root    string
	libcuda string // CUPOOL_LIBCUDA
	open    map[string]error
	prints  map[string]string // what programs print, by what is in their command line
	fails   map[string]error

	driver     cuda.Versions
	driverErr  error
	gpus       []cuda.Device
	gpusErr    error
	blas, nccl error
}

func newFixture(t *testing.T) *fixture {
	f := &fixture{t: t, os: "linux", root: t.TempDir(), open: map[string]error{}, fails: map[string]error{}}
	f.prints = map[string]string{"query-gpu": "0, Disabled\n", "compute-apps": "", "stat": "video\n"}
	f.driver = cuda.Versions{Driver: 13000, Library: "libcuda.so.1"}
	f.gpus = []cuda.Device{{Name: "NVIDIA H200", Major: 9, FreeBytes: 130 << 30, TotalBytes: 140 << 30}}
	f.file("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
	f.file("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\nGCC version: gcc 12.3.0\n")
	f.file("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
	f.file("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n")
	for _, dev := range []string{"nvidia0", "nvidiactl", "nvidia-uvm"} {
		f.file("/dev/"+dev, "")
	}
	f.loads("libcuda.so.580.65.06", "libcublasLt.so.13.1.0", "libcublas.so.13.1.0")
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

// loads lists the libraries that are open.
func (f *fixture) loads(names ...string) {
	f.t.Helper()
	maps := "7f04ffff8000-7f0500000000 rw-p 00000000 00:00 0\n"
	for _, name := range names {
		maps += "7f0500000000-7f0500042000 r--p 00000000 08:01 1234                       /lib/" + name + "\n"
	}
	f.file("/proc/self/maps", maps)
}

// without is a computer on which no library of a driver was opened.
func (f *fixture) without() {
	f.t.Helper()
	f.driver, f.driverErr, f.gpus = cuda.Versions{}, errors.New("no libcuda.so.1"), nil
	f.loads()
}

// gpuless is one that was opened, and lists no GPUs.
func (f *fixture) gpuless() { f.gpus, f.gpusErr = nil, errors.New("CUDA_ERROR_NO_DEVICE") }

// wsl makes it a Linux in Windows.
func (f *fixture) wsl() {
	f.t.Helper()
	f.file("/proc/sys/kernel/osrelease", "5.15.167.4-microsoft-standard-WSL2\n")
	f.remove("/dev", "/proc/driver", "/sys")
	f.file("/dev/dxg", "")
}

func (f *fixture) examine() []Line {
	return Machine{
		OS:     f.os,
		Root:   f.root,
		Getenv: func(string) string { return f.libcuda },
		Open: func(path string) error {
			if err := f.open[path]; err != nil {
				return err
			}
			_, err := os.Stat(filepath.Join(f.root, path))
			return err
		},
		Run: func(name string, args ...string) ([]byte, error) {
			command := name + " " + strings.Join(args, " ")
			for part, err := range f.fails {
				if strings.HasPrefix(command, part) {
					return []byte("NVIDIA-SMI has failed.\nMake sure\n"), err
				}
			}
			for part, out := range f.prints {
				if strings.Contains(command, part) {
					return []byte(out), nil
				}
			}
			return nil, fs.ErrNotExist
		},
		CUDA: CUDA{
			Version: func() (cuda.Versions, error) { return f.driver, f.driverErr },
			Devices: func() ([]cuda.Device, error) { return f.gpus, f.gpusErr },
			CuBLAS:  func() (Library, error) { return Library{"libcublas.so.13", "13.1.0"}, f.blas },
			NCCL:    func() (Library, error) { return Library{"/opt/libnccl.so.2", "2.27.3"}, f.nccl },
		},
	}.Examine()
}

// Each case spoils one thing of a good machine: the lines that are not good
// are those of the thing.
func TestExamine(t *testing.T) {
	type lines []Line
	for name, c := range map[string]struct {
		set  func(f *fixture)
		want lines // Text and Do are parts
	}{
		"all good": {func(f *fixture) {}, nil},
		"a Mac":    {func(f *fixture) { f.os = "darwin" }, lines{{Missing, "system", "darwin", "Linux or Windows"}}},
		"the stand-in": {func(f *fixture) {
			f.libcuda = "/tmp/libcuda.so.1"
			f.remove("/dev", "/proc")
			f.fails["nvidia-smi"] = fs.ErrNotExist
		},
			lines{{Advice, "CUPOOL_LIBCUDA", "/tmp/libcuda.so.1 is used in place", "unset it"}}},
		"no stand-in where it is said to be": {func(f *fixture) { f.without(); f.libcuda = "/nowhere" },
			lines{{Advice, "CUPOOL_LIBCUDA", "/nowhere", ""}, {Missing, "driver", "no libcuda.so.1", "unset CUPOOL_LIBCUDA"}}},

		// No library of a driver was opened.
		"no GPU":                        {func(f *fixture) { f.without(); f.remove("/dev", "/proc/driver", "/sys") }, lines{{Missing, "GPU", "no NVIDIA GPU", "runs on the host"}}},
		"a GPU without a driver":        {func(f *fixture) { f.without(); f.remove("/dev", "/proc/driver") }, lines{{Missing, "driver", "GPU without a driver", "install NVIDIA's driver"}}},
		"a module without a library":    {func(f *fixture) { f.without() }, lines{{Missing, "driver", "module is 580.65.06", "install the rest"}}},
		"a container without GPUs":      {func(f *fixture) { f.without(); f.remove("/dev"); f.file("/.dockerenv", "") }, lines{{Missing, "GPU", "in this container", "docker run --gpus all"}}},
		"Podman's without the library":  {func(f *fixture) { f.without(); f.file("/run/.containerenv", "") }, lines{{Missing, "driver", "not in this container", "NVIDIA_DRIVER_CAPABILITIES"}}},
		"Windows without a driver":      {func(f *fixture) { f.without(); f.os = "windows" }, lines{{Missing, "driver", "nvcuda.dll", "install NVIDIA's driver"}}},
		"WSL 1":                         {func(f *fixture) { f.file("/proc/sys/kernel/osrelease", "4.4.0-19041-Microsoft") }, lines{{Missing, "system", "WSL 1", "--set-version"}}},
		"WSL 2 without a GPU":           {func(f *fixture) { f.without(); f.wsl(); f.remove("/dev/dxg") }, lines{{Missing, "GPU", "/dev/dxg", "wsl --update"}}},
		"WSL 2 without the library":     {func(f *fixture) { f.without(); f.wsl() }, lines{{Missing, "driver", "not there", "none for Linux"}}},
		"a library that is no driver's": {func(f *fixture) { f.driver.Driver = 0; f.remove("/proc/driver", "/sys") }, lines{{Missing, "GPU", "no NVIDIA GPU", ""}}},

		// One was opened.
		"no module":               {func(f *fixture) { f.gpuless(); f.remove("/proc/driver", "/dev") }, lines{{Missing, "driver", "module is not loaded", "modprobe"}}},
		"a library without a GPU": {func(f *fixture) { f.gpuless(); f.remove("/proc/driver", "/dev", "/sys") }, lines{{Missing, "GPU", "no NVIDIA GPU", ""}}},
		"a sound device of NVIDIA's": {func(f *fixture) {
			f.gpuless()
			f.remove("/proc/driver", "/dev")
			f.file("/sys/bus/pci/devices/0000:01:00.0/class", "0x040300\n")
		}, lines{{Missing, "GPU", "no NVIDIA GPU", ""}}},
		"a container with the library": {func(f *fixture) { f.gpuless(); f.remove("/dev"); f.file("/proc/1/cgroup", "0::/docker/abc\n") }, lines{{Missing, "GPU", "/dev/nvidiactl", "docker run --gpus all"}}},
		"two versions":                 {func(f *fixture) { f.gpuless(); f.loads("libcuda.so.590.10") }, lines{{Missing, "driver", "module is 580.65.06, the library 590.10", "restart"}}},
		"two versions that work":       {func(f *fixture) { f.loads("libcuda.so.590.10") }, nil},
		"it fails":                     {func(f *fixture) { f.gpuless() }, lines{{Missing, "GPU", "CUDA_ERROR_NO_DEVICE", "dmesg"}}},
		"it lists none":                {func(f *fixture) { f.gpus = nil }, lines{{Missing, "GPU", "no GPUs", "dmesg"}}},
		"WSL 2 fails":                  {func(f *fixture) { f.gpuless(); f.wsl() }, lines{{Missing, "GPU", "CUDA_ERROR_NO_DEVICE", "restart"}}},
		"a very old driver":            {func(f *fixture) { f.driver.Driver = 10020 }, lines{{Missing, "driver", "CUDA 10.2", "install 450"}}},
		"an old driver": {func(f *fixture) {
			f.driver = cuda.Versions{Driver: 11040, Missing: []string{"cuStreamGetId (CUDA 12.0)"}}
		}, lines{{Advice, "driver", "CUDA 11.4", "newer"}}},
		"not permitted": {func(f *fixture) { f.gpuless(); f.open["/dev/nvidia0"] = fs.ErrPermission },
			lines{{Missing, "device files", "/dev/nvidia0 can only be opened by the group video", "usermod -aG video"}}},
		"root's": {func(f *fixture) {
			f.gpuless()
			f.open["/dev/nvidiactl"] = fs.ErrPermission
			f.prints["stat"] = "root\n"
		},
			lines{{Missing, "device files", "/dev/nvidiactl cannot be opened", "chmod a+rw /dev/nvidiactl"}}},
		"not permitted in a container": {func(f *fixture) { f.gpuless(); f.open["/dev/nvidia0"] = fs.ErrPermission; f.file("/.dockerenv", "") },
			lines{{Missing, "device files", "in this container", "docker run --gpus all"}}},
		"one of two":       {func(f *fixture) { f.file("/dev/nvidia1", ""); f.open["/dev/nvidia1"] = fs.ErrPermission }, lines{{Advice, "device files", "/dev/nvidia1", ""}}},
		"no nvidia-uvm":    {func(f *fixture) { f.gpuless(); f.remove("/dev/nvidia-uvm") }, lines{{Missing, "device files", "/dev/nvidia-uvm is not there", "nvidia-modprobe"}}},
		"a broken device":  {func(f *fixture) { f.gpuless(); f.open["/dev/nvidia0"] = errors.New("input/output error") }, lines{{Missing, "device files", "input/output error", "dmesg"}}},
		"a full GPU":       {func(f *fixture) { f.gpus[0].FreeBytes = 100 << 20 }, lines{{Advice, "cuda:0", "100 MiB free of 140 GiB", "CUDA_VISIBLE_DEVICES"}}},
		"a GPU for others": {func(f *fixture) { f.gpus[0].FreeBytes = -1 }, lines{{Missing, "cuda:0", "no context", "nvidia-smi -q"}}},
		"MIG":              {func(f *fixture) { f.prints["query-gpu"] = "0, [N/A]\n1, Enabled\n" }, lines{{Advice, "MIG", "on GPU 1", "nvidia-smi -L"}}},
		"no nvidia-smi":    {func(f *fixture) { f.fails["nvidia-smi"] = errors.New("exit status 9") }, lines{{Advice, "nvidia-smi", "exit status 9 NVIDIA-SMI has failed.", "install all"}}},
		"other output":     {func(f *fixture) { f.prints["query-gpu"] = "No devices were found\n" }, lines{{Advice, "nvidia-smi", "wrong number of fields", ""}}},
		"no cuBLAS":        {func(f *fixture) { f.blas = errMissing }, lines{{Advice, "cuBLAS", "not found; products", "pip install nvidia-cublas,"}}},
		"cuBLAS on a full GPU": {func(f *fixture) { f.blas, f.gpus[0].FreeBytes = errors.New("out of memory"), -1 }, lines{
			{Missing, "cuda:0", "no context", "nvidia-smi -q"}, {Advice, "cuBLAS", "it is there, and could not be tried: out of memory", "run this again"},
		}},
		"no cuBLAS for 12":  {func(f *fixture) { f.blas = errMissing; f.driver.Driver = 12040 }, lines{{Advice, "cuBLAS", "not found; products", "nvidia-cublas-cu12"}}},
		"no NCCL":           {func(f *fixture) { f.nccl = errMissing }, nil},
		"two GPUs, no NCCL": {func(f *fixture) { f.nccl = errMissing; f.gpus = append(f.gpus, f.gpus[0]) }, lines{{Advice, "NCCL", "not found; ranks", "nvidia-nccl-cu13"}}},
		"WSL 2":             {func(f *fixture) { f.wsl(); f.fails["nvidia-smi"] = fs.ErrNotExist }, nil}, // it is in /usr/lib/wsl/lib
		"Windows":           {func(f *fixture) { f.os = "windows"; f.remove("/dev", "/proc", "/sys") }, nil},
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
	texts := func() map[string]string {
		all := map[string]string{}
		for _, l := range f.examine() {
			all[l.Subject] = l.Text
		}
		return all
	}
	assert.Equal(t, map[string]string{
		"system": "Linux 6.8.0-45-generic", "driver": "for CUDA 13.0, version 580.65.06, /lib/libcuda.so.580.65.06", "device files": "can be read and written",
		"cuda:0": "NVIDIA H200, compute capability 9.0, 130 GiB free of 140 GiB", "MIG": "off", "processes": "nvidia-smi knows of none that holds memory of a GPU",
		"cuBLAS": "13.1.0, /lib/libcublas.so.13.1.0", "NCCL": "2.27.3, /opt/libnccl.so.2",
	}, texts())

	f.prints["compute-apps"] = "4711, 12288, /usr/bin/python3\n4712, [N/A], say \"a\", b\n4713, 1, \n" + strconv.Itoa(os.Getpid()) + ", 1, doctor\n"
	got := texts()
	assert.Equal(t, "/usr/bin/python3 holds 12 GiB of a GPU's memory", got["process 4711"])
	assert.Equal(t, `say "a", b holds memory of a GPU`, got["process 4712"])
	assert.Equal(t, "it holds 1 MiB of a GPU's memory", got["process 4713"])
	assert.Len(t, got, 10)
}

// This computer can be looked at, whatever it has.
func TestExamineHere(t *testing.T) {
	assert.NotEmpty(t, Machine{}.Examine())
}
