package cuda

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/fakecuda"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

// Tests of the optional parts of the CUDA Driver.

// TestVirtualMemory is about what TestDriver does not ask: the GPU's memory, and Drivers
// without virtual memory.
func TestVirtualMemory(t *testing.T) {
	d := openTest(t)
	g := d.VMMGranularity()
	if g == 0 {
		t.Skip("the GPU has no virtual memory")
	}
	before, _, err := d.MemInfo()
	require.NoError(t, err)
	h, err := d.MemCreate(2 * g)
	require.NoError(t, err)
	free, _, err := d.MemInfo()
	require.NoError(t, err)
	assert.LessOrEqual(t, free, before-2*g, "the handle takes memory")
	require.NoError(t, d.MemRelease(h))
	after, _, err := d.MemInfo()
	require.NoError(t, err)
	assert.InDelta(t, before, after, 16<<20)

	_, err = d.MemCreate(g * (math.MaxInt64 / g / 4))
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	m := openTest(t, Managed())
	assert.Zero(t, m.VMMGranularity())
	_, err = m.AddressReserve(g)
	require.ErrorIs(t, err, device.ErrNotSupported)
}

func TestHostMemory(t *testing.T) {
	d := openTest(t)
	s := newStream(t, d)
	const n = 1 << 20
	p, err := d.HostAlloc(n)
	require.NoError(t, err)
	b := make([]byte, n)
	reg, err := d.HostRegister(b)
	require.NoError(t, err)
	dev := alloc(t, d, n)
	want := testkit.Pattern(n)
	copy(hostBytes(p, n), want)
	require.NoError(t, d.Copy(dev, p, n, s))
	require.NoError(t, d.Copy(reg, dev, n, s), "asynchronous, into Go's memory")
	require.NoError(t, d.SyncStream(s))
	require.Equal(t, want, b)
	require.ErrorIs(t, d.Memset(p, 0, n+1, s), device.ErrInvalidRange)
	require.ErrorIs(t, d.MemFree(p), device.ErrInvalidRange, "it is HostAlloc's")
	require.ErrorIs(t, d.HostFree(dev), device.ErrInvalidRange, "it is MemAlloc's")
	for _, other := range [][]byte{b[:1], b[:0], b[1:]} {
		require.ErrorIs(t, d.HostUnregister(other), device.ErrInvalidRange, "%d bytes", len(other))
	}
	require.NoError(t, d.HostUnregister(b))
	require.ErrorIs(t, d.HostUnregister(b), device.ErrInvalidRange)
	require.NoError(t, d.HostFree(p))
	require.ErrorIs(t, d.HostFree(p), device.ErrInvalidRange)
	_, err = d.HostRegister(nil)
	require.ErrorIs(t, err, device.ErrInvalidRange)
	_, err = d.HostAlloc(0)
	require.ErrorIs(t, err, device.ErrInvalidRange)
	_, err = d.HostAlloc(1 << 50)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
}

func TestManagedHints(t *testing.T) {
	d := openTest(t, Managed())
	s := newStream(t, d)
	const n = 4 << 20
	p := alloc(t, d, n)
	if d.ctx.attribute(attrConcurrentManaged) == 0 {
		t.Skip("hints need concurrent managed access")
	}
	for _, at := range []Location{{Kind: OnDevice}, {Kind: OnHost}} {
		require.NoError(t, d.Prefetch(p, n, at, s))
		require.NoError(t, d.Advise(p, n, AdvisePreferredLocation, at))
		require.NoError(t, d.Advise(p, n, AdviseAccessedBy, at))
		require.NoError(t, d.Advise(p, n, AdviseNotAccessedBy, at))
	}
	for _, a := range []Advice{AdviseReadMostly, AdviseNotReadMostly, AdviseNoPreferredLocation} {
		require.NoError(t, d.Advise(p, n, a, Location{Kind: OnDevice, ID: 0}))
	}
	require.NoError(t, d.SyncStream(s))
	require.Error(t, d.Advise(p, n, Advice(99), Location{Kind: OnDevice, ID: 0}))
	require.ErrorIs(t, d.Prefetch(p, n+1, Location{Kind: OnDevice, ID: 0}, s), device.ErrInvalidRange)
	plain := openTest(t)
	require.Error(t, plain.Prefetch(alloc(t, plain, n), n, Location{Kind: OnDevice, ID: 0}, 0), "not managed memory")
}

func TestStreamInfo(t *testing.T) {
	d := openTest(t)
	a, b := newStream(t, d), newStream(t, d)
	ia, err := d.StreamID(a)
	require.NoError(t, err)
	ib, err := d.StreamID(b)
	require.NoError(t, err)
	require.NotEqual(t, ia, ib)
	capturing, id, err := d.StreamCapture(a)
	require.NoError(t, err)
	require.False(t, capturing)
	require.Zero(t, id)
	require.Equal(t, cudadrv.Success, cudadrv.StreamBeginCapture(d.Context(), uintptr(a)))
	capturing, id, err = d.StreamCapture(a)
	require.NoError(t, err)
	require.True(t, capturing)
	require.NotZero(t, id)
	require.Equal(t, cudadrv.Success, cudadrv.StreamDropCapture(d.Context(), uintptr(a)))
	capturing, _, err = d.StreamCapture(a)
	require.NoError(t, err)
	require.False(t, capturing)
}

// TestKernels runs the test kernels over memory of each kind.
func TestKernels(t *testing.T) {
	for _, kind := range []MemoryKind{MemoryDevice, MemoryManaged, MemoryPinned} {
		d := openTest(t, Memory(kind))
		k := testKernels(t, d)
		s := newStream(t, d)
		const n = 1<<20 + 4
		p := alloc(t, d, n)
		wrong := alloc(t, d, 4)
		count := func(value uint32) uint32 {
			require.NoError(t, d.Memset(wrong, 0, 4, s))
			require.NoError(t, k.Check(uintptr(s), uintptr(p), n, value, uintptr(wrong)))
			b := make([]byte, 4)
			require.NoError(t, d.CopyOut(b, wrong, s))
			return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
		}
		require.NoError(t, k.Fill(uintptr(s), uintptr(p), n, 42))
		assert.Zero(t, count(42), kind)
		assert.EqualValues(t, n/4, count(43), kind)
		require.NoError(t, k.Add(uintptr(s), uintptr(p), n, 1))
		assert.Zero(t, count(43), kind)
		require.NoError(t, d.Memset(p+512, 0, 8, s))
		assert.EqualValues(t, 2, count(43), kind)
		begin := time.Now()
		require.NoError(t, k.Spin(uintptr(s), 20*time.Millisecond))
		require.NoError(t, d.SyncStream(s))
		assert.GreaterOrEqual(t, time.Since(begin), 20*time.Millisecond)
	}
}

// TestEntries: a driver of CUDA 12.2 or newer has everything.
func TestEntries(t *testing.T) {
	gputest.Need(t)
	for _, e := range cudadrv.Entries() {
		assert.Equal(t, cudadrv.DriverVersion() >= e.Since, e.Present, "%s, CUDA %v", e.Name, e.Since)
	}
	assert.EqualValues(t, 11020, cudadrv.Needs("cuMemPoolCreate"))
	assert.Zero(t, cudadrv.Needs("cuNoSuchCall"))
	assert.Equal(t, "12.2", cudadrv.Version(12020).String())
	assert.Equal(t, "CUDA_ERROR_OUT_OF_MEMORY", cudadrv.OutOfMemory.Name())
	assert.Equal(t, "CUDA error 987654", cudadrv.Result(987654).Name())
}

func TestHostMemInfo(t *testing.T) {
	free, total, err := hostMemInfo()
	require.NoError(t, err)
	assert.Positive(t, free)
	assert.Less(t, free, total)
	dir := t.TempDir()
	limit, used := groupMemory(dir)
	assert.EqualValues(t, math.MaxInt64, limit)
	assert.Zero(t, used)
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("memory/memory.limit_in_bytes", "1000\n")
	write("memory/memory.usage_in_bytes", "400\n")
	limit, used = groupMemory(dir)
	assert.Equal(t, []int64{1000, 400}, []int64{limit, used})
	write("memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n")
	_, used = groupMemory(dir)
	assert.EqualValues(t, 250, used, "files that are only kept are in nobody's way")
	write("memory.max", "max\n")
	write("memory.current", "5\n")
	limit, _ = groupMemory(dir)
	assert.EqualValues(t, 1000, limit)
	write("memory.max", "2000\n")
	limit, used = groupMemory(dir)
	assert.Equal(t, []int64{2000, 5}, []int64{limit, used})
	write("memory.current", "2000\n")
	write("memory.stat", "anon 200\nfile 1800\nshmem 300\ninactive_file 1000\nactive_file 500\n")
	_, used = groupMemory(dir)
	assert.EqualValues(t, 500, used)
}

func TestErrorText(t *testing.T) {
	e := &Error{Device: "cuda:0", Call: "cuMemAlloc", Detail: "512 bytes", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory", Err: device.ErrOutOfMemory}
	assert.EqualError(t, e, "cupool: cuda:0: cuMemAlloc (512 bytes): CUDA_ERROR_OUT_OF_MEMORY (2): out of memory")
	e.Text = ""
	assert.True(t, strings.HasSuffix(e.Error(), "(2): out of memory"))
	assert.ErrorIs(t, e, device.ErrOutOfMemory)
	assert.Equal(t, "MemoryKind(7)", fmt.Sprint(MemoryKind(7)))
}

// TestRDMA: physical memory is for network cards, too, where the device and the
// system have that.
func TestRDMA(t *testing.T) {
	needFake(t)
	has := os.Getenv("FAKECUDA_RDMA") == ""
	if has {
		child(t, "FAKECUDA_RDMA=0")
	}
	d := openTest(t)
	g := d.VMMGranularity()
	create := func() (calls int, rdma bool) {
		fakecuda.Count(true)
		h, err := d.MemCreate(g)
		require.NoError(t, err)
		calls, rdma = fakecuda.Calls("cuMemCreate"), fakecuda.RDMA(h)
		require.NoError(t, d.MemRelease(h))
		return calls, rdma
	}
	calls, rdma := create()
	require.Equal(t, 1, calls)
	require.Equal(t, has, rdma)
	if !has {
		return
	}
	// A failure with another reason is reported, and one by the flag is found out once.
	for _, code := range []int{2, int(cudadrv.NotSupported)} {
		fakecuda.Fail("cuMemCreate", 1, code, 2)
		_, err := d.MemCreate(g)
		require.Error(t, err)
		fakecuda.Reset()
		_, rdma = create()
		require.True(t, rdma, code)
	}
	fakecuda.Fail("cuMemCreate", 1, int(cudadrv.NotSupported), 1)
	defer fakecuda.Reset()
	calls, rdma = create()
	require.Equal(t, 2, calls)
	require.False(t, rdma)
	calls, rdma = create()
	require.Equal(t, 1, calls)
	require.False(t, rdma)
}
