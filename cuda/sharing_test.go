package cuda

import (
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/fakecuda"
)

// shareRangeVar has what the other process needs to know of a range.
const shareRangeVar = "CUPOOL_TEST_SHARE_RANGE"

// TestShareRangeVirtual shares the middle of three handles with another process.
func TestShareRangeVirtual(t *testing.T) {
	d := openShareable(t)
	s, g := newStream(t, d), d.VMMGranularity()
	if r, ok := sharedRange(t); ok {
		receiveRange(t, d, s, r)
		return
	}
	at, err := d.AddressReserve(4 * g)
	require.NoError(t, err)
	mapPieces(t, d, at, 3)
	require.NoError(t, d.MemSetAccess(at, 3*g))
	p := at + Ptr(g) + 512
	sendRange(t, d, s, p, 2)

	_, err = d.ExportRange(at+Ptr(2*g), g+1)
	require.ErrorIs(t, err, device.ErrInvalidRange, "the end is not mapped")
	_, err = d.ExportRange(at, 0)
	require.ErrorIs(t, err, device.ErrInvalidRange)
	require.ErrorIs(t, d.CloseRange(at), device.ErrInvalidRange)
	plain := openTest(t)
	h, err := plain.MemCreate(g)
	require.NoError(t, err)
	q, err := plain.AddressReserve(g)
	require.NoError(t, err)
	require.NoError(t, plain.MemMap(q, g, h))
	require.NoError(t, plain.MemSetAccess(q, g))
	_, err = plain.ExportRange(q, 1)
	require.ErrorIs(t, err, device.ErrNotSupported)
	require.ErrorContains(t, err, "cuda.Shareable()")
}

// TestShareRangeAllocated shares the inside of an allocation with another process.
func TestShareRangeAllocated(t *testing.T) {
	d := openTest(t)
	s := newStream(t, d)
	if r, ok := sharedRange(t); ok {
		receiveRange(t, d, s, r)
		return
	}
	p := alloc(t, d, shareSize+4096)
	sendRange(t, d, s, p+1024, 1)
	_, err := d.ExportRange(p, shareSize+8192)
	require.ErrorIs(t, err, device.ErrInvalidRange)
}

// TestShareableKinds: only device memory can be exported.
func TestShareableKinds(t *testing.T) {
	for _, o := range []Option{Managed(), Pinned()} {
		_, err := Open(0, o, Shareable())
		require.ErrorIs(t, err, device.ErrNotSupported)
	}
	d := openTest(t, Pinned())
	p := alloc(t, d, 4096)
	_, err := d.ExportRange(p, 1)
	require.ErrorIs(t, err, device.ErrNotSupported)
	_, err = d.ImportRange(device.SharedRange{Size: 1, Pieces: []device.SharedPiece{{Size: 1}}})
	require.ErrorIs(t, err, device.ErrNotSupported)
}

// TestImportRangeGarbage: what is no memory is refused and leaves nothing behind.
func TestImportRangeGarbage(t *testing.T) {
	d := openShareable(t)
	g, held := d.VMMGranularity(), d.Held()
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	for name, r := range map[string]device.SharedRange{
		"no pieces": {Size: 1}, "too small": {Size: g + 1, Pieces: []device.SharedPiece{{Size: g, File: f}}},
		"a file": {Size: 1, Pieces: []device.SharedPiece{{Size: g, File: f}}}, "odd": {Size: 1, Pieces: []device.SharedPiece{{Size: 5, File: f}}},
		"two names": {Size: 1, Pieces: []device.SharedPiece{{Size: g}, {Size: g}}}, "no name": {Size: 1, Pieces: []device.SharedPiece{{Size: g}}},
		"half": {Size: 1, Pieces: []device.SharedPiece{{Size: g, File: f}, {Size: g}}},
	} {
		_, err := d.ImportRange(r)
		require.Error(t, err, name)
		require.Equal(t, held, d.Held(), name)
	}
}

// TestShareFails: an export that fails leaves no file open, and an import no memory mapped.
func TestShareFails(t *testing.T) {
	needFake(t)
	d := openShareable(t)
	g := d.VMMGranularity()
	at, err := d.AddressReserve(2 * g)
	require.NoError(t, err)
	mapPieces(t, d, at, 2)
	for _, call := range []string{"cuMemRetainAllocationHandle", "cuMemExportToShareableHandle", "cuMemRelease"} {
		for nth := range 2 {
			before := openFiles(t)
			fakecuda.Fail(call, 1+nth, 999, 1)
			_, err = d.ExportRange(at, 2*g)
			require.ErrorContains(t, err, call)
			require.Equal(t, before, openFiles(t), call)
			fakecuda.Reset()
		}
	}
	r, err := d.ExportRange(at, 2*g)
	require.NoError(t, err)
	defer r.Close()
	held := d.Held()
	for _, call := range []string{"cuMemAddressReserve", "cuMemImportFromShareableHandle", "cuMemMap", "cuMemRelease", "cuMemSetAccess"} {
		for nth := range 2 {
			if nth == 1 && (call == "cuMemAddressReserve" || call == "cuMemSetAccess") {
				continue // it is called once
			}
			fakecuda.Fail(call, 1+nth, 999, 1)
			_, err = d.ImportRange(r)
			require.ErrorContains(t, err, call)
			fakecuda.Reset()
			require.Equal(t, held, d.Held(), "%s %d", call, nth)
		}
	}
}

func openFiles(t *testing.T) int {
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(files)
}

func openShareable(t *testing.T) *driver {
	if d := openTest(t); d.VMMGranularity() == 0 || d.ctx.attribute(attrShareFD) == 0 {
		t.Skip("the GPU does not share virtual memory by file descriptor")
	}
	return openTest(t, Shareable())
}

// mapPieces maps so many handles of the least size side by side.
func mapPieces(t *testing.T, d *driver, at Ptr, n int) {
	t.Helper()
	g := d.VMMGranularity()
	for i := range Ptr(n) {
		h, err := d.MemCreate(g)
		require.NoError(t, err)
		require.NoError(t, d.MemMap(at+i*Ptr(g), g, h))
		require.NoError(t, d.MemRelease(h))
	}
}

// sendRange has another process read and write a range, and checks what it wrote.
func sendRange(t *testing.T, d *driver, s StreamHandle, p Ptr, pieces int) {
	require.NoError(t, d.Memset(p, 7, shareSize, s))
	require.NoError(t, d.SyncStream(s))
	r, err := d.ExportRange(p, shareSize)
	require.NoError(t, err)
	defer r.Close()
	require.Len(t, r.Pieces, pieces)
	var files []*os.File
	text := []string{strconv.FormatInt(r.Skip, 10)}
	var names []byte
	for _, x := range r.Pieces {
		text = append(text, strconv.FormatInt(x.Size, 10))
		if x.File != nil {
			files = append(files, x.File)
		} else {
			names = append(names, x.Name[:]...)
		}
	}
	if names != nil {
		rd, wr, err := os.Pipe()
		require.NoError(t, err)
		defer rd.Close()
		_, err = wr.Write(names)
		require.NoError(t, err)
		require.NoError(t, wr.Close())
		files = append(files, rd)
		text = append(text, "name")
	}
	child(t, shareRangeVar+"="+strings.Join(text, " "), files...)
	expect(t, d, p, s, 8, 0)
}

// sharedRange returns what the parent has sent, or ok false in the parent.
func sharedRange(t *testing.T) (r device.SharedRange, ok bool) {
	words := strings.Fields(os.Getenv(shareRangeVar))
	named := slices.Contains(words, "name")
	for i, w := range words {
		if w == "name" {
			_, err := io.ReadFull(os.NewFile(3, "names"), r.Pieces[0].Name[:])
			require.NoError(t, err)
			break
		}
		n, err := strconv.ParseInt(w, 10, 64)
		require.NoError(t, err)
		if i == 0 {
			r.Skip, r.Size = n, shareSize
			continue
		}
		r.Pieces = append(r.Pieces, device.SharedPiece{Size: n})
		if !named {
			r.Pieces[i-1].File = os.NewFile(uintptr(2+i), "memory")
		}
	}
	return r, len(words) > 0
}

func receiveRange(t *testing.T, d *driver, s StreamHandle, r device.SharedRange) {
	held := d.Held()
	var at []Ptr
	for range 2 { // one more time
		p, err := d.ImportRange(r)
		require.NoError(t, err)
		at = append(at, p)
	}
	expect(t, d, at[1], s, 7, 8)
	expect(t, d, at[0], s, 8, 7)
	require.NoError(t, d.CloseRange(at[0]))
	expect(t, d, at[1], s, 7, 8)
	require.ErrorIs(t, d.MemFree(at[1]), device.ErrInvalidRange)
	require.NoError(t, d.CloseRange(at[1]))
	require.ErrorIs(t, d.CloseRange(at[1]), device.ErrInvalidRange)
	require.Equal(t, held, d.Held())
}

// TestShareFabric: memory has a fabric handle beside its file where the device and the
// system have that.
func TestShareFabric(t *testing.T) {
	needFake(t)
	fabric := os.Getenv("FAKECUDA_FABRIC")
	if fabric == "" {
		child(t, "FAKECUDA_FABRIC=1")
		child(t, "FAKECUDA_FABRIC=2") // no channel for it
		return
	}
	d := openTest(t, Shareable())
	s, g := newStream(t, d), d.VMMGranularity()
	at, err := d.AddressReserve(2 * g)
	require.NoError(t, err)
	for i := range Ptr(2) {
		fakecuda.Count(true)
		h, err := d.MemCreate(g)
		require.NoError(t, err)
		want := 1
		if fabric == "2" && i == 0 {
			want = 2
		}
		require.Equal(t, want, fakecuda.Calls("cuMemCreate"))
		require.True(t, fakecuda.RDMA(h))
		require.NoError(t, d.MemMap(at+i*Ptr(g), g, h))
		require.NoError(t, d.MemRelease(h))
	}
	require.NoError(t, d.MemSetAccess(at, 2*g))
	require.NoError(t, d.Memset(at, 7, 2*g, s))
	r, err := d.ExportRange(at+1, 2*g-1)
	require.NoError(t, err)
	defer r.Close()
	require.Len(t, r.Pieces, 2)
	for i, x := range r.Pieces {
		require.NotNil(t, x.File)
		require.Equal(t, fabric == "1", x.Fabric != [64]byte{})
		r.Pieces[i].File = nil
		require.NoError(t, x.File.Close())
	}
	held := d.Held()
	p, err := d.ImportRange(r)
	if fabric == "2" {
		require.ErrorIs(t, err, device.ErrInvalidRange)
		require.Equal(t, held, d.Held())
		return
	}
	require.NoError(t, err)
	expect(t, d, p, s, 7, 0)
	require.NoError(t, d.CloseRange(p))
	r.Pieces[1].Fabric = [64]byte{}
	_, err = d.ImportRange(r)
	require.ErrorIs(t, err, device.ErrInvalidRange)
	require.Equal(t, held, d.Held())
}
