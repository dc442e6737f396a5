package cudatoolkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// vendorHeaders returns the directory of a real cuda.h, of the version that
// cupool's own has or a newer one.
func vendorHeaders(t *testing.T) string {
	shared, err := filepath.Abs("../../../shared/cuda/include")
	require.NoError(t, err)
	dirs := []string{shared}
	if tk, err := (System{}).Find(""); err == nil {
		dirs = append(dirs, tk.Includes[0])
	}
	for _, dir := range dirs {
		if v, err := headerVersion(filepath.Join(dir, "cuda.h")); err == nil && v >= ownVersion(t) {
			return dir
		}
	}
	t.Skip("no CUDA headers to compare with")
	return ""
}

func ownVersion(t *testing.T) int {
	v, err := headerVersion("driverapi/cuda.h")
	require.NoError(t, err)
	return v
}

// compile checks a C file, and returns what the compiler says.
func compile(t *testing.T, source string, args ...string) (string, error) {
	t.Helper()
	cc, err := (System{}).Compiler()
	if err != nil {
		t.Skip(err)
	}
	cmd := exec.Command(cc[0], append(cc[1:], append(args, "-std=gnu11", "-Wno-deprecated-declarations", "-fsyntax-only", "-x", "c", "-")...)...)
	cmd.Stdin = strings.NewReader(source)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestOwnHeader compares cupool's own header with a real one.
func TestOwnHeader(t *testing.T) {
	vendor := vendorHeaders(t)
	types, names := comparison(t, string(driverAPI))
	out, err := compile(t, types, "-I"+vendor)
	require.NoError(t, err, out)
	out, err = compile(t, names, "-Iwrapper", "-I"+vendor)
	require.NoError(t, err, out)
}

// Every kind of mistake in the header is seen.
func TestOwnHeaderMistakes(t *testing.T) {
	vendor := vendorHeaders(t)
	for name, c := range map[string]struct{ right, wrong string }{
		"constant":           {"CUDA_ERROR_NOT_READY = 600,", "CUDA_ERROR_NOT_READY = 601,"},
		"constant, macro":    {"#define CU_TRSF_NORMALIZED_COORDINATES 0x02", "#define CU_TRSF_NORMALIZED_COORDINATES 0x04"},
		"constant's sign":    {"CU_TR_ADDRESS_MODE_BORDER = 3,", "CU_TR_ADDRESS_MODE_BORDER = 3, CU_X = -1"},
		"unknown constant":   {"CUDA_ERROR_NOT_READY", "CUDA_ERROR_NOT_QUITE"},
		"member's order":     {"size_t srcXInBytes;\n\tsize_t srcY;", "size_t srcY;\n\tsize_t srcXInBytes;"},
		"member's size":      {"unsigned short usage;\n\tunsigned char reserved[54];", "unsigned int usage;\n\tunsigned char reserved[52];"},
		"member's type":      {"float *", "double *"},
		"nested member":      {"unsigned char gpuDirectRDMACapable;\n", "unsigned short gpuDirectRDMACapable;\n"},
		"structure's size":   {"char bytes[16];", "char bytes[17];"},
		"scalar's size":      {"typedef int CUdevice;", "typedef long CUdevice;"},
		"handle":             {"typedef struct CUevent_st *CUevent;", "typedef struct CUstream_st *CUevent;"},
		"callback":           {"typedef void (CUDA_CB *CUhostFn)", "typedef int (CUDA_CB *CUhostFn)"},
		"parameter":          {"cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)", "cuMemAlloc_v2(CUdeviceptr *p, unsigned int bytes)"},
		"parameters":         {"cuMemAlloc_v2(CUdeviceptr *p, size_t bytes)", "cuMemAlloc_v2(CUdeviceptr *p, size_t bytes, size_t more)"},
		"function's version": {"#define cuMemFree cuMemFree_v2", "#define cuMemFree cuMemFree_v3"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, string(driverAPI), c.right)
			types, names := comparison(t, strings.Replace(string(driverAPI), c.right, c.wrong, 1))
			_, err1 := compile(t, types, "-I"+vendor)
			_, err2 := compile(t, names, "-Iwrapper", "-I"+vendor)
			assert.True(t, err1 != nil || err2 != nil, "not seen")
		})
	}
}

var (
	identifier = regexp.MustCompile(`\b(CU|cu)\w*`)
	enumConst  = regexp.MustCompile(`(?m)^\t(\w+) = `)
	macroConst = regexp.MustCompile(`(?m)^#define (CU\w+) \S`)
	enumType   = regexp.MustCompile(`(?m)^typedef enum (\w+) [^}]*\} (\w+);`)
	structType = regexp.MustCompile(`(?ms)^typedef struct (\w+) \{\n(.*?)^\} (\w+);`)
	otherType  = regexp.MustCompile(`(?m)^typedef [^{}\n]*;$`)
	member     = regexp.MustCompile(`(\w+)(\[\d+\])?;`)
	prototype  = regexp.MustCompile(`(?m)^CUresult CUDAAPI (\w+)\(.*\);$`)
	nameOf     = regexp.MustCompile(`(?m)^#define (cu\w+) (\w+)$`)
	nested     = regexp.MustCompile(`(?ms)^\tstruct \{\n(.*?)^\t\} (\w+);\n`)
)

// comparison returns two C files that compile where a real cuda.h agrees with
// the header. The first has the header with other names beside the real one,
// and is for the functions under their own names. The second is for the names
// that programs use, which lead to these functions.
func comparison(t *testing.T, header string) (types, names string) {
	var c, n strings.Builder
	same := func(format, a, b string) {
		fmt.Fprintf(&c, "_Static_assert("+format+", \"%s\");\n", a, b, strings.ReplaceAll(b, `"`, ""))
	}
	fmt.Fprint(&c, "#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n#include <stddef.h>\n")
	c.WriteString(identifier.ReplaceAllStringFunc(header, func(s string) string { return "our_" + s }))
	count := 0
	all := func(re *regexp.Regexp) [][]string {
		found := re.FindAllStringSubmatch(header, -1)
		require.NotEmpty(t, found, re)
		count += len(found)
		return found
	}
	for _, m := range append(all(enumConst), all(macroConst)...) {
		if m[1] == "CUDA_VERSION" {
			continue // the real one may be newer
		}
		same("(long long)(our_%s) == (long long)(%s)", m[1], m[1])
	}
	for _, m := range all(enumType) {
		fmt.Fprintf(&c, "typedef enum %s %s;\n", m[1], m[2])
		same("((our_%[1]s)-1 < 0) == ((%[2]s)-1 < 0) && sizeof(our_%[1]s) == sizeof(%[2]s)", m[2], m[2])
	}
	for _, m := range all(structType) {
		fmt.Fprintf(&c, "typedef struct %s %s;\n", m[1], m[3])
		same("sizeof(our_%s) == sizeof(%s)", m[3], m[3])
		for _, path := range members(m[2]) {
			at := m[3] + ", " + path
			same("offsetof(our_%s) == offsetof(%s)", at, at)
			at = "((" + m[3] + " *)0)->" + path
			same("sizeof %s == sizeof %s", strings.Replace(at, "((", "((our_", 1), at)
		}
	}
	for _, re := range []*regexp.Regexp{otherType, prototype} {
		for _, m := range all(re) {
			c.WriteString(m[0] + "\n") // C allows it once more if it says the same
		}
	}
	fmt.Fprint(&n, "#include <cuda.h>\n#define TEXT_(x) #x\n#define TEXT(x) TEXT_(x)\n")
	for _, m := range all(nameOf) {
		fmt.Fprintf(&n, "_Static_assert(__builtin_strcmp(TEXT(%[1]s), %[2]q) == 0, %[1]q);\n", m[1], m[2])
	}
	// Nothing in the header has a form that is overlooked here.
	decls := 0
	for _, line := range strings.Split(header, "\n") {
		if strings.HasPrefix(line, "typedef ") || strings.HasPrefix(line, "CUresult ") || strings.Contains(line, " = ") ||
			strings.HasPrefix(line, "#define cu") || strings.HasPrefix(line, "#define CU") {
			decls++
		}
	}
	const notCompared = 3 // the header's guard, CUDAAPI and CUDA_CB
	require.Equal(t, decls-notCompared, count)
	return c.String(), n.String()
}

// members returns the members of a structure, and those of structures in it.
func members(body string) []string {
	var paths []string
	body = nested.ReplaceAllStringFunc(body, func(s string) string {
		m := nested.FindStringSubmatch(s)
		for _, path := range members(m[1]) {
			paths = append(paths, m[2]+"."+path)
		}
		return "\tint " + m[2] + ";\n"
	})
	for _, m := range member.FindAllStringSubmatch(body, -1) {
		paths = append(paths, m[1])
	}
	return paths
}

func TestWriteHeader(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "a cache")
	dir, err := writeHeader(cache, driverAPI)
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(dir, "cuda.h"))
	require.NoError(t, err)
	assert.Equal(t, driverAPI, b)
	other, err := writeHeader(cache, wrapper)
	require.NoError(t, err)
	assert.NotEqual(t, dir, other)

	// A file that is damaged is written again.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cuda.h"), nil, 0o644))
	again, err := writeHeader(cache, driverAPI)
	require.NoError(t, err)
	assert.Equal(t, dir, again)
	b, err = os.ReadFile(filepath.Join(dir, "cuda.h"))
	require.NoError(t, err)
	assert.Equal(t, driverAPI, b)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, left, 1)
}

func TestDriverSource(t *testing.T) {
	const header = "CUresult CUDAAPI cuInit(unsigned int);\n#define cuMemFree cuMemFree_v2\ntypedef struct CUctx_st *CUcontext; cuuint64_t x;\ncuInit"
	list, code, _ := strings.Cut(string(driverSource([]byte(header))), "\n\n")
	assert.Equal(t, "#define FUNCTIONS(X) \\\n\tX(0, cuInit) \\\n\tX(1, cuMemFree) \\\n\tX(2, cuMemFree_v2)", list)
	assert.Equal(t, string(driverCode), code)
}
