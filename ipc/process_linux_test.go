package ipc_test

import (
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
)

const (
	mib  = 1 << 20
	size = 5*mib + 4096 // several handles, and the middle of one
)

// each runs a test with every device.
func each(t *testing.T, f func(t *testing.T, dev device)) {
	for _, dev := range devices {
		t.Run(dev.name, func(t *testing.T) {
			if strings.HasPrefix(dev.name, onGPU) {
				gputest.Need(t)
			}
			f(t, dev)
		})
	}
}

// pair starts an exporter that serves and an importer that is connected.
func pair(t *testing.T, dev device) (exporter, importer *process) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "socket")
	exporter, importer = start(t, dev, "exporter"), start(t, dev, "importer")
	exporter.do("serve %s", path)
	importer.do("connect %s", path)
	return exporter, importer
}

// TestTwoProcesses: each sees what the other one wrote, in memory that is not reused
// before both are done, whoever is first.
func TestTwoProcesses(t *testing.T) {
	each(t, func(t *testing.T, dev device) {
		exporter, importer := pair(t, dev)
		files := importer.do("files socket: anon_inode:[pidfd] /memfd:")
		exporter.do("share other %d 1", 3*mib) // memory around it
		exporter.do("share x %d 7", size)
		require.Equal(t, "5246976", importer.do("open x a"))
		require.Equal(t, "0", importer.do("expect a 7"))
		importer.do("fill a 8")
		importer.do("open x b") // a second time
		require.Equal(t, "0", importer.do("expect b 8"))
		importer.do("close a")
		importer.do("fill b 9")
		require.Equal(t, "0", importer.do("expect b 9"))
		require.Equal(t, "0", exporter.do("check x 9"))
		require.Equal(t, "0", exporter.do("check other 1"), "nothing else was written")

		exporter.do("free x") // the exporter first
		exporter.do("share y %d 1", size)
		require.Equal(t, "0", importer.do("expect b 9"), "the memory is not reused")
		exporter.do("withdraw x")
		_, err := importer.try("open x c")
		require.ErrorContains(t, err, "nothing is shared under this name")
		require.NotEqual(t, "0", exporter.do("pending"))
		require.Equal(t, "1", exporter.do("uses"))
		importer.do("close b") // the importer last
		require.Equal(t, "0", exporter.do("uses"))
		require.Equal(t, "0", exporter.do("pending"))

		importer.do("open y d") // the importer first, the exporter last
		require.Equal(t, "0", importer.do("expect d 1"))
		importer.do("close d")
		exporter.do("free y")
		require.NotEqual(t, "0", exporter.do("pending"), "the name is there")
		require.Equal(t, files, importer.do("files socket: anon_inode:[pidfd] /memfd:"))
		exporter.do("end 10000")
		require.Equal(t, "0", exporter.do("pending"))
		require.Contains(t, importer.do("gone"), "gone")
		_, err = importer.try("open y e")
		require.ErrorContains(t, err, "gone")
		importer.quit()
		exporter.do("free other")
		exporter.quit()
	})
}

// TestStreamOrder: an importer sees what the exporter's stream had still to write when
// the block was shared, and no later.
func TestStreamOrder(t *testing.T) {
	each(t, func(t *testing.T, dev device) {
		exporter, importer := pair(t, dev)
		exporter.do("busy")
		exporter.do("share x %d 7", size)
		importer.do("opening x")
		exporter.eventually("1", "uses")
		_, err := importer.in.Write([]byte("open x a\n"))
		require.NoError(t, err)
		time.Sleep(20 * time.Millisecond) // time to be wrong
		exporter.do("idle")
		_, err = importer.answer()
		require.NoError(t, err)
		require.Equal(t, "0", importer.do("expect a 7"))
		importer.do("disconnect")
		exporter.eventually("0", "uses")
		exporter.do("free x")
		exporter.do("end 10000")
		importer.quit()
		exporter.quit()
	})
}

// TestImporterCrashes kills the importer at every step: what it had open comes back.
func TestImporterCrashes(t *testing.T) {
	steps := map[string]func(exporter, importer *process){
		"before it connects": func(exporter, importer *process) {},
		"connected":          func(exporter, importer *process) { importer.do("connect %s", exporter.name) },
		"open": func(exporter, importer *process) {
			importer.do("connect %s", exporter.name)
			importer.do("open x a")
			importer.do("open x b")
		},
		"working": func(exporter, importer *process) {
			importer.do("connect %s", exporter.name)
			importer.do("open x a")
			importer.do("busy")
			importer.do("fill a 3")
		},
		"closed": func(exporter, importer *process) {
			importer.do("connect %s", exporter.name)
			importer.do("open x a")
			importer.do("close a")
		},
		"disconnected": func(exporter, importer *process) {
			importer.do("connect %s", exporter.name)
			importer.do("open x a")
			importer.do("disconnect")
		},
	}
	each(t, func(t *testing.T, dev device) {
		path := filepath.Join(t.TempDir(), "socket")
		exporter := start(t, dev, path)
		exporter.do("serve %s", path)
		exporter.do("share x %d 7", size)
		files := exporter.do("files socket: anon_inode:[pidfd]")
		for name, step := range steps {
			t.Log(name)
			importer := start(t, dev, name)
			step(exporter, importer)
			importer.kill()
			exporter.eventually("0", "uses")
		}
		importer := start(t, dev, "opening")
		importer.do("connect %s", path)
		exporter.do("busy")
		exporter.do("share late %d 8", size) // nobody can open it yet
		importer.do("opening late")
		exporter.eventually("1", "uses")
		importer.kill()
		require.Equal(t, "1", exporter.do("uses"), "until the stream is there")
		exporter.do("idle")
		exporter.eventually("0", "uses")
		exporter.eventually(files, "files socket: anon_inode:[pidfd]")
		exporter.do("free x")
		exporter.do("free late")
		exporter.do("end 10000")
		require.Equal(t, "0", exporter.do("pending"))
		exporter.quit()
	})
}

// TestExporterCrashes kills the exporter at every step: the importer is told, and keeps
// what it has mapped, unless that is of CUDA's segments.
func TestExporterCrashes(t *testing.T) {
	each(t, func(t *testing.T, dev device) {
		for _, at := range []string{"connected", "opening", "open", "closed", "freed"} {
			t.Log(at)
			exporter, importer := pair(t, dev)
			exporter.do("share x %d 7", size)
			switch at {
			case "opening":
				exporter.do("busy")
				exporter.do("share late %d 8", size)
				importer.do("opening late")
				exporter.eventually("1", "uses")
			case "open", "freed":
				importer.do("open x a")
				if at == "freed" {
					exporter.do("free x")
					exporter.do("withdraw x")
				}
			case "closed":
				importer.do("open x a")
				importer.do("close a")
			}
			exporter.kill()
			require.Contains(t, importer.do("gone"), "the other process is gone")
			_, err := importer.try("open x b")
			require.ErrorContains(t, err, "gone")
			mapped := at == "open" || at == "freed"
			if mapped && dev.name == "cuda segments" { // CUDA promises nothing of them, not even that they can be closed
				_, err := importer.try("close a")
				t.Log("closing segments of a process that has ended:", err)
				require.Equal(t, "0", importer.do("files socket:"), "the connection is closed")
				importer.kill()
				continue
			}
			if mapped {
				require.Equal(t, "0", importer.do("expect a 7"), "the memory lives")
				importer.do("fill a 9")
				require.Equal(t, "0", importer.do("expect a 9"))
				importer.do("close a")
			}
			require.Equal(t, "0", importer.do("files socket:"), "the connection is closed")
			importer.do("disconnect")
			importer.quit()
		}
	})
}

// TestImporterNeverCloses: Close of the server says who holds what, and Force ends it.
func TestImporterNeverCloses(t *testing.T) {
	each(t, func(t *testing.T, dev device) {
		exporter, importer := pair(t, dev)
		exporter.do("share x %d 7", size)
		importer.do("open x a")
		exporter.do("free x")
		for range 2 {
			_, err := exporter.try("end 30")
			require.ErrorContains(t, err, `"x", 5246976 bytes`)
			require.ErrorContains(t, err, "deadline exceeded")
		}
		_, err := exporter.try("share y 5 5")
		require.ErrorContains(t, err, "closed")
		_, err = importer.try("open x b")
		require.ErrorContains(t, err, `opening "x": the server is closed`)
		require.Equal(t, "0", importer.do("expect a 7"), "it is not disturbed")
		if strings.HasSuffix(dev.name, "segments") { // CUDA forbids to give them back
			importer.do("disconnect")
			require.Equal(t, "0", exporter.do("force"))
		} else {
			require.Equal(t, "1", exporter.do("force"))
		}
		require.Equal(t, "0", exporter.do("pending"))
		_, err = exporter.try("end 10000")
		require.ErrorContains(t, err, "closed")
		importer.do("gone")
		importer.quit()
		exporter.quit()
	})
}

// TestStorm: several importers open, check, write, close, leave and die at random.
func TestStorm(t *testing.T) {
	each(t, func(t *testing.T, dev device) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		path := filepath.Join(t.TempDir(), "socket")
		exporter := start(t, dev, "exporter")
		exporter.do("serve %s", path)
		exporter.do("share keep 1000 1")
		files := exporter.do("files socket: anon_inode:[pidfd]")
		type block struct {
			name   string
			value  int
			shared bool
			freed  bool
		}
		type importer struct {
			*process
			open map[string]*block
		}
		names := []string{"a", "b", "c", "d"}
		blocks := map[string]*block{}
		importers := make([]*importer, 2)
		for step := range testkit.Rounds(1200) {
			i := r.IntN(len(importers))
			if importers[i] == nil {
				p := start(t, dev, "importer")
				p.do("connect %s", path)
				importers[i] = &importer{p, map[string]*block{}}
			}
			p := importers[i]
			name := names[r.IntN(len(names))]
			b, mine := blocks[name], p.open[name]
			switch k := r.IntN(100); {
			case b == nil:
				b = &block{name: name, value: 1 + r.IntN(200), shared: true}
				exporter.do("share %s %d %d", name, 4*(1+r.IntN(size/4)), b.value)
				blocks[name] = b
			case mine != nil && k < 40:
				require.Equal(t, "0", p.do("expect %s %d", name, mine.value), "%s at step %d", name, step)
			case mine != nil && k < 60:
				mine.value = 1 + r.IntN(200)
				p.do("fill %s %d", name, mine.value)
				require.Equal(t, "0", p.do("expect %s %d", name, mine.value))
			case mine != nil && k < 80:
				p.do("close %s", name)
				delete(p.open, name)
			case mine == nil && k < 70:
				p.do("open %s %s", name, name)
				p.open[name] = b
			case k < 90 && !b.freed:
				exporter.do("free %s", name)
				b.freed = true
			case k < 98 && b.freed:
				exporter.do("withdraw %s", name)
				delete(blocks, name)
			case k >= 98:
				p.kill()
				importers[i] = nil
			}
		}
		for _, p := range importers {
			if p != nil {
				p.do("disconnect")
				p.quit()
			}
		}
		exporter.eventually("0", "uses")
		for _, b := range blocks {
			if !b.freed {
				exporter.do("free %s", b.name)
			}
			exporter.do("withdraw %s", b.name)
		}
		require.Equal(t, "0", exporter.do("pending"))
		exporter.eventually(files, "files socket: anon_inode:[pidfd]")
		exporter.do("free keep")
		exporter.do("end 10000")
		exporter.quit()
	})
}
