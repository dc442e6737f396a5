package images

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/kernels"
)

var architectures = []int{80, 86, 89, 90, 100, 120}

func file(t *testing.T, name string) []byte {
	t.Helper()
	files, err := zip.NewReader(strings.NewReader(archive), int64(len(archive)))
	require.NoError(t, err)
	image, err := read(files, name)
	require.NoError(t, err)
	return image
}

// TestImagesAreUpToDate fails when a kernel was changed and build.sh not run, which
// makes all images at once.
func TestImagesAreUpToDate(t *testing.T) {
	h := sha256.New()
	for _, pattern := range []string{"../*.cu", "../*.h"} {
		names, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, names)
		for _, name := range names {
			text, err := os.ReadFile(name)
			require.NoError(t, err)
			h.Write(text)
		}
	}
	require.Equal(t, fmt.Sprintf("%x\n", h.Sum(nil)), string(file(t, "sources")), "run internal/kernels/build.sh")
}

// TestImagesHaveKernels requires each kernel in every image of its module, and no
// other one.
func TestImagesHaveKernels(t *testing.T) {
	of := map[kernels.Module]int{}
	for k := kernels.Kernel(0); k < kernels.Count; k++ {
		of[k.Module()]++
	}
	images := 1 // the hash
	for m := range kernels.Modules {
		ptx := string(file(t, m.String()+".ptx"))
		require.Contains(t, ptx, ".target sm_75")
		require.Equal(t, of[m], strings.Count(ptx, ".entry "))
		images++
		code := map[int]*elf.File{}
		for _, sm := range architectures {
			image := []byte(file(t, fmt.Sprintf("%v.sm_%d", m, sm)))
			image[20] = byte(elf.EV_CURRENT) // ptxas of CUDA 12 has its own version there
			f, err := elf.NewFile(bytes.NewReader(image))
			require.NoError(t, err)
			require.EqualValues(t, 190, f.Machine, "CUDA's")
			code[sm] = f
			images++
		}
		for k := kernels.Kernel(0); k < kernels.Count; k++ {
			if k.Module() != m {
				continue
			}
			require.True(t, strings.Contains(ptx, ".entry "+k.Name()+"("), "kernel %d, %s", k, k.Name())
			for sm, f := range code {
				require.NotNil(t, f.Section(".text."+k.Name()), "kernel %d, %s, sm_%d", k, k.Name(), sm)
			}
		}
	}
	files, err := zip.NewReader(strings.NewReader(archive), int64(len(archive)))
	require.NoError(t, err)
	require.Len(t, files.File, images)
}

func TestOf(t *testing.T) {
	for _, c := range []struct {
		major, minor int
		sass         string // its suffix, or none
	}{
		{7, 5, ""}, {8, 0, ".sm_80"}, {8, 6, ".sm_86"}, {8, 7, ".sm_86"}, {8, 9, ".sm_89"}, {9, 0, ".sm_90"},
		{10, 0, ".sm_100"}, {10, 3, ".sm_100"}, {11, 0, ""}, {12, 0, ".sm_120"}, {12, 1, ".sm_120"}, {13, 0, ""},
	} {
		for m := range kernels.Modules {
			var want, got [][]byte
			if c.sass != "" {
				want = append(want, file(t, m.String()+c.sass))
			}
			want = append(want, append(file(t, m.String()+".ptx"), 0))
			for image, err := range Of(m, c.major, c.minor) {
				require.NoError(t, err)
				got = append(got, image)
			}
			require.Len(t, got, len(want), "%d.%d", c.major, c.minor)
			for i := range want {
				require.True(t, bytes.Equal(want[i], got[i]), "%d.%d: image %d of %v", c.major, c.minor, i, m)
			}
		}
	}
}

// TestDamagedArchive wants an error of every image, and no panic.
func TestDamagedArchive(t *testing.T) {
	whole := archive
	defer func() { archive = whole }()
	for name, damaged := range map[string]string{
		"cut":     whole[:len(whole)/2],
		"missing": strings.ReplaceAll(whole, "kernels.ptx", "Kernels.ptx"),
	} {
		archive = damaged
		var last error
		for _, last = range Of(kernels.Base, 7, 5) {
		}
		require.ErrorContains(t, last, "the archive of the kernels", name)
	}
}

// TestBuffersCarryNoKernels builds a program that has only buffers on a device:
// the linker has to leave the archive out.
func TestBuffersCarryNoKernels(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs Go")
	}
	program := filepath.Join(t.TempDir(), "buffers")
	out, err := exec.Command("go", "build", "-o", program, "./testdata/buffers").CombinedOutput()
	require.NoError(t, err, "%s", out)
	this, err := os.Executable()
	require.NoError(t, err)
	for name, carries := range map[string]bool{program: false, this: true} {
		binary, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, carries, bytes.Contains(binary, []byte(archive[:4096])), name)
	}
}
