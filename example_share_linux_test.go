package cupool_test

import (
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"syscall"

	"github.com/cupool/cupool"
)

// One process makes a pool and sends it with a block, the other one uses the
// block. Both are this process here, which the host device allows.
func ExampleNative_Send() {
	sender, receiver := socketPair()
	defer sender.Close()
	defer receiver.Close()
	c, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	n, err := cupool.NewNative(c, cupool.NativeConfig{Pool: &cupool.NativePoolConfig{Shareable: true}})
	if err != nil {
		log.Fatal(err)
	}
	b, err := n.Alloc(1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(c.DefaultStream().CopyIn(b.Ptr(), []byte("hello")), c.DefaultStream().Sync(), n.Send(sender)); err != nil {
		log.Fatal(err)
	}
	pointer, err := n.ExportBlock(b) // after the pool; send it, and the size, as they are
	if err != nil {
		log.Fatal(err)
	}

	other, err := cupool.ReceiveNative(c, receiver)
	if err != nil {
		log.Fatal(err)
	}
	x, err := other.ImportBlock(pointer, 1000, nil)
	if err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 5)
	if err := c.DefaultStream().CopyOut(got, x.Ptr()); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(got), x.Ptr() != b.Ptr())
	// The one who imported a block frees it first.
	if err := errors.Join(other.Free(x), other.Close(), n.Free(b), n.Close()); err != nil {
		log.Fatal(err)
	}
	// Output: hello true
}

// A pool as a file, as exec.Cmd.ExtraFiles hands it on.
func ExampleNative_Export() {
	c, err := cupool.New(cupool.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	n, err := cupool.NewNative(c, cupool.NativeConfig{Pool: &cupool.NativePoolConfig{Shareable: true}})
	if err != nil {
		log.Fatal(err)
	}
	defer n.Close()
	f, err := n.Export()
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	other, err := cupool.ImportNative(c, f)
	if err != nil {
		log.Fatal(err)
	}
	_, err = other.Alloc(1, nil)
	fmt.Println(errors.Is(err, cupool.ErrNotSupported), other.Close())
	// Output: true <nil>
}

// The same without a Native: a file descriptor for the pool, and 64 bytes for
// each allocation.
func ExampleNativePools_share() {
	device, pools := hostPools()
	defer device.Close()
	pool, err := pools.NewNativePool(cupool.NativePoolConfig{Shareable: true})
	if err != nil {
		log.Fatal(err)
	}
	p, err := pools.AllocAsync(4096, pool, 0)
	if err != nil {
		log.Fatal(err)
	}
	if err := errors.Join(device.Memset(p, 6, 4096, 0), device.SyncStream(0)); err != nil {
		log.Fatal(err)
	}
	fd, err := pools.ExportNativePool(pool) // before what is in it
	if err != nil {
		log.Fatal(err)
	}
	var data cupool.PoolPointer
	if data, err = pools.ExportNativePointer(p); err != nil {
		log.Fatal(err)
	}

	// The other process, which has got the descriptor and the bytes.
	theirs, err := pools.ImportNativePool(fd)
	if err != nil {
		log.Fatal(err)
	}
	q, err := pools.ImportNativePointer(theirs, data)
	if err != nil {
		log.Fatal(err)
	}
	got := make([]byte, 3)
	fmt.Println(device.CopyOut(got, q, 0), got)
	fmt.Println(errors.Join(pools.FreeAsync(q, 0), pools.FreeAsync(p, 0), // the importer first
		pools.DestroyNativePool(theirs), pools.DestroyNativePool(pool), syscall.Close(fd)))
	// Output:
	// <nil> [6 6 6]
	// <nil>
}

func socketPair() (a, b *net.UnixConn) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		log.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		conn, err := net.FileConn(f)
		if err != nil {
			log.Fatal(err)
		}
		f.Close()
		ends[i] = conn.(*net.UnixConn)
	}
	return ends[0], ends[1]
}
