package device

import (
	"go/build"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNarrowSystems: a build for a system of 32 bits has the file that makes it
// fail and says why, and no other build has it.
func TestNarrowSystems(t *testing.T) {
	for arch, narrow := range map[string]bool{
		"386": true, "arm": true, "mips": true, "mipsle": true,
		"amd64": false, "arm64": false, "riscv64": false, "ppc64le": false, "s390x": false, "loong64": false, "mips64le": false, "wasm": false,
	} {
		for _, system := range strings.Fields("linux windows darwin freebsd") {
			ctx := build.Default
			ctx.GOOS, ctx.GOARCH = system, arch
			p, err := ctx.ImportDir(".", 0)
			require.NoError(t, err)
			if narrow {
				require.Contains(t, p.GoFiles, "width_32.go", "%s/%s", system, arch)
			} else {
				require.NotContains(t, p.GoFiles, "width_32.go", "%s/%s", system, arch)
			}
		}
	}
}
