package ipc_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/ipc"
)

// open returns a pool whose blocks can be shared. On a GPU the device is
// cuda.Open(0, cuda.Shareable()).
func open() *cupool.Pool {
	d, err := cupool.OpenHost(cupool.HostConfig{Shareable: true})
	if err != nil {
		log.Fatal(err)
	}
	c, err := cupool.New(cupool.Config{Driver: d})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// One process shares a block, another one opens it. Both are this process here, which
// the host device allows.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address := &net.UnixAddr{Name: filepath.Join(dir, "weights"), Net: "unix"}

	// The exporter.
	pool := open()
	listener, err := net.ListenUnix("unix", address)
	if err != nil {
		log.Fatal(err)
	}
	var server *ipc.Server
	server, err = ipc.NewServer(pool, ipc.Config{})
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(ctx, listener)
	block, err := pool.Alloc(5, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := pool.DefaultStream().CopyIn(block.Ptr(), []byte("hello")); err != nil {
		log.Fatal(err)
	}
	var share *ipc.Share
	share, err = server.Share("greeting", block, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(share.Name(), share.Block() == block)

	// The importer.
	theirs := open()
	conn, err := net.DialUnix("unix", nil, address)
	if err != nil {
		log.Fatal(err)
	}
	var client *ipc.Client
	client, err = ipc.Connect(ctx, theirs, conn, ipc.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var memory *ipc.Memory
	memory, err = client.Open(ctx, "greeting")
	if err != nil {
		log.Fatal(err)
	}
	work, err := theirs.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	text := make([]byte, memory.Size())
	err = errors.Join(memory.RecordStream(work), work.CopyOut(text, memory.Ptr()))
	fmt.Println(memory.Name(), string(text), client.Peer().PID == os.Getpid(), err)

	// The exporter is done first. The memory is the importer's as long as that has it.
	fmt.Println(pool.Free(block), share.Close(), pool.Stats().PendingBytes > 0, len(server.Uses()))
	fmt.Println(memory.Close(ctx), pool.Stats().PendingBytes, len(server.Uses()))
	fmt.Println(client.Close(ctx), server.Close(ctx), listener.Close(), pool.Close(), theirs.Close())
	// Output:
	// greeting true
	// greeting hello true <nil>
	// <nil> <nil> true 1
	// <nil> 0 0
	// <nil> <nil> <nil> <nil> <nil>
}
