package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	status, _, stderr := tool(t)
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, "usage: cupool COMMAND")
	status, stdout, _ := tool(t, "help")
	assert.Zero(t, status)
	for _, c := range commands {
		assert.Contains(t, stdout, c.name)
		status, _, stderr := tool(t, c.name, "-h")
		assert.Zero(t, status, c.name)
		assert.Contains(t, stderr, "usage: cupool "+c.name)
		status, _, _ = tool(t, c.name, "-no-such-flag")
		assert.Equal(t, 2, status, c.name)
	}
	status, _, stderr = tool(t, "fly")
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, `unknown command "fly"`)
	status, _, stderr = tool(t, "env", "more")
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, `unexpected argument "more"`)
}

func TestInfo(t *testing.T) {
	status, stdout, stderr := tool(t, "info")
	require.Zero(t, status, stderr)
	assert.Contains(t, stdout, "host device")
	assert.Contains(t, stdout, "16 GiB free of 16 GiB")
	assert.Regexp(t, `CUDA +not in this build|CUDA driver +\d`, stdout)
	assert.Regexp(t, `(?m)^settings +limit:0 +\(default\)$`, stdout)
}

// Settings come from the flag, else the environment, else by default.
func TestInfoSettings(t *testing.T) {
	t.Setenv("CUPOOL_ALLOC_CONF", "max_split_size_mb:64,strategy:first-fit")
	t.Setenv("CUPOOL_MAX_SIZE", "2G")
	status, stdout, stderr := tool(t, "info", "-conf", "strategy:segregated,decay:10s")
	require.Zero(t, status, stderr)
	for _, want := range []string{
		`limit:2G +\(CUPOOL_MAX_SIZE\)`, `max_split:64M +\(CUPOOL_ALLOC_CONF\)`, `decay:10s +\(flag\)`,
		`strategy:segregated +\(flag, not CUPOOL_ALLOC_CONF=first-fit\)`, `large_segment:20M +\(default\)`,
	} {
		assert.Regexp(t, `(?m) `+want+`$`, stdout)
	}
	status, _, stderr = tool(t, "info", "-conf", "fly:1")
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "fly: is no key")
	t.Setenv("CUPOOL_MAX_SIZE", "much")
	status, _, stderr = tool(t, "info")
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "max_size in CUPOOL_MAX_SIZE = much: must be a size")
}
