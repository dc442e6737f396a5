package faults_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/adaptor"
	"github.com/cupool/cupool/arena"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/debug"
	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/devices"
	"github.com/cupool/cupool/dist"
	"github.com/cupool/cupool/gorgoniavm"
	"github.com/cupool/cupool/internal/testkit"
	"github.com/cupool/cupool/internal/testkit/gputest"
	"github.com/cupool/cupool/internal/testkit/handletest"
	"github.com/cupool/cupool/internal/testkit/pooltest"
	"github.com/cupool/cupool/ipc"
	"github.com/cupool/cupool/native"
	"github.com/cupool/cupool/nccl"
	"github.com/cupool/cupool/nn"
	"github.com/cupool/cupool/planner"
	"github.com/cupool/cupool/snapshot"
)

// handles are the types whose values functions of the public packages make: nil and zero
// ones have methods that fail.
var handles = []any{
	(*cupool.Buffer[float32])(nil), (*cupool.Engine)(nil), (*cupool.Event)(nil), (*cupool.Graph)(nil), (*cupool.Pool)(nil),
	(*cupool.Scope)(nil), (*cupool.Stream)(nil), (*arena.Arena)(nil), (*devices.Set)(nil), (*dist.Reducer)(nil),
	(*gorgoniavm.Solver)(nil), (*gorgoniavm.StockSolver)(nil), (*gorgoniavm.VM)(nil),
	(*ipc.Client)(nil), (*ipc.Memory)(nil), (*ipc.Server)(nil), (*ipc.Share)(nil),
	(*native.Allocator)(nil), (*nccl.Comm)(nil), (*planner.Planner)(nil),
}

// adaptors are handles whose zero values alone may be called: most methods are those of a
// struct that they embed, and Go panics when one is called of a nil adaptor.
var adaptors = []any{
	(*adaptor.BySize)(nil), (*adaptor.FailureCallback)(nil), (*adaptor.Fallback)(nil), (*adaptor.Limiting)(nil),
	(*adaptor.Logging)(nil), (*adaptor.Recording)(nil), (*adaptor.Statistics)(nil), (*adaptor.Tracking)(nil),
}

// data are types with fields that a program may fill itself: their zero values have methods that
// do not panic.
var data = []any{
	(*cupool.Backing)(nil), (*cupool.Block)(nil), (*cupool.BlockError)(nil), (*cupool.Divisions)(nil), (*cupool.EngineError)(nil),
	(*cupool.IdleOrder)(nil), (*cupool.LeakError)(nil), (*cupool.LeakGroup)(nil), (*cupool.Mint)(nil), (*cupool.OOMError)(nil),
	(*cupool.Stat)(nil), (*cupool.Stats)(nil), (*cupool.Strategy)(nil),
	(*cuda.Error)(nil), (*cuda.MemoryKind)(nil),
	(*device.ConfigError)(nil), (*device.CorruptionError)(nil), (*device.Ptr)(nil), (*device.SharedRange)(nil), (*device.Stream)(nil), (*device.WaitError)(nil),
	(*dist.Memory)(nil), (*dist.Op)(nil), (*dist.Type)(nil),
	(*gorgoniavm.Adam)(nil), (*gorgoniavm.AdamW)(nil), (*gorgoniavm.Momentum)(nil), (*gorgoniavm.OpError)(nil), (*gorgoniavm.SGD)(nil), (*gorgoniavm.SolverError)(nil),
	(*ipc.BusyError)(nil), (*nccl.Error)(nil),
	(*nn.Activation)(nil), (*nn.Adam)(nil), (*nn.Conv)(nil), (*nn.Function)(nil), (*nn.RMSProp)(nil), (*nn.SGD)(nil), (*nn.YOLO)(nil),
	(*planner.Deviation)(nil),
	(*snapshot.FormatError)(nil), (*snapshot.Frame)(nil), (*snapshot.Holders)(nil), (*snapshot.Line)(nil), (*snapshot.Lines)(nil), (*snapshot.Snapshot)(nil), (*snapshot.Stack)(nil),
}

// functions are those of the public packages.
var functions = []any{
	cupool.BufferFrom[float32], cupool.ConfigFromEnv, cupool.EngineOf, cupool.New, cupool.NewBuffer[float32], cupool.NewEngine, cupool.NewMint,
	cupool.Open, cupool.OpenHost, cupool.ParseAllocConf, cupool.ParseBytes, cupool.ParseDivisions, cupool.SameDivisions, cupool.Try,
	cupool.WithBuffer[float32], cupool.WithLifetimes, cupool.WithStream, cupool.WithTF32,
	adaptor.Find[*cupool.Pool], adaptor.NewBySize, adaptor.NewFailureCallback, adaptor.NewFallback, adaptor.NewLimiting, adaptor.NewLogging,
	adaptor.NewRecording, adaptor.NewStatistics, adaptor.NewTracking,
	arena.New,
	cuda.Devices, cuda.Managed, cuda.Memory, cuda.Open, cuda.OpenContext, cuda.Pinned, cuda.Shareable, cuda.Version,
	debug.AllowHosts, debug.Handler, debug.Publish, debug.Serve, debug.SnapshotHandler,
	devices.New, devices.Open, devices.OpenAll,
	dist.FromEnv, dist.Local, dist.NewReducer, dist.Of[float32], dist.OfTensor,
	gorgoniavm.BindDualValues, gorgoniavm.EvalMode, gorgoniavm.Gradients, gorgoniavm.Keep, gorgoniavm.KeepGradients, gorgoniavm.New,
	gorgoniavm.NewSolver, gorgoniavm.NewStockSolver, gorgoniavm.Replay, gorgoniavm.ToPool, gorgoniavm.TraceValues, gorgoniavm.Watch,
	gorgoniavm.WatchInf, gorgoniavm.WatchNaN, gorgoniavm.WithLogger, gorgoniavm.WithSeed,
	ipc.Connect, ipc.NewServer,
	native.Import, native.New, native.Receive,
	nccl.New, nccl.NewLocal, nccl.Version,
	nn.Activate, nn.ActivateBack, nn.Apply, nn.AvgPool2d, nn.AvgPool2dBack, nn.BatchNorm, nn.BatchNormBack, nn.BiasActivate, nn.BiasActivateBack,
	nn.Binomial, nn.CTCLoss, nn.CTCLossBack, nn.Col2Im, nn.Conv2d, nn.Conv2dBack, nn.Convert, nn.CrossEntropy, nn.DiagFlat, nn.Dropout,
	nn.DropoutBack, nn.GorgoniaAvgPool2dBack, nn.GroupNorm, nn.GroupNormBack, nn.Im2Col, nn.Linear, nn.LinearBack, nn.MaxPool2d,
	nn.MaxPool2dBack, nn.NextDraw, nn.Normal, nn.ScaledCrossEntropy, nn.ScaledDropoutBack, nn.Sparsemax, nn.SparsemaxBack, nn.Uniform,
	nn.Upsample2d, nn.Upsample2dBack,
	planner.New,
	snapshot.HoldersOf, snapshot.LinesOf, snapshot.Read, snapshot.WriteProfile, snapshot.WriteTorch,
}

// TestHandlesOfNothing: no method panics whose receiver is nil or zero. One of a handle that
// returns an error fails, and the others answer with nothing.
func TestHandlesOfNothing(t *testing.T) {
	zero := func(x any) any { return reflect.New(reflect.TypeOf(x).Elem()).Interface() }
	for _, x := range handles {
		handletest.Receivers(t, x, zero(x))
	}
	for _, x := range adaptors {
		handletest.Receivers(t, zero(x))
	}
	for _, x := range data {
		handletest.Arguments(t, func() any { return zero(x) })
	}
}

// TestFunctionsOfNothing: no function panics that is given nil or zero handles, functions and
// contexts.
func TestFunctionsOfNothing(t *testing.T) {
	for _, f := range functions {
		handletest.Function(t, functionName(f), f)
	}
}

func functionName(f any) string {
	name, _, _ := strings.Cut(runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name(), "[")
	return name
}

// TestEverythingIsTried: no public type with methods and no public function is missing from the
// lists.
func TestEverythingIsTried(t *testing.T) {
	tried := map[string]bool{
		root + "/cupooltest.NoLeaks": true, // takes a testing.TB
	}
	for _, list := range [][]any{handles, adaptors, data} {
		for _, x := range list {
			typ := reflect.TypeOf(x).Elem()
			name, _, _ := strings.Cut(typ.Name(), "[")
			tried[typ.PkgPath()+"."+name] = true
		}
	}
	for _, f := range functions {
		tried[functionName(f)] = true
	}
	public := 0
	require.NoError(t, filepath.WalkDir("../../..", func(folder string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		switch d.Name() {
		case "bench", "cmd", "examples", "internal", "metrics", "testdata", ".git":
			return fs.SkipDir
		}
		pkg, err := build.ImportDir(folder, 0)
		if err != nil {
			return nil // no package
		}
		rel, err := filepath.Rel("../../..", folder)
		require.NoError(t, err)
		for _, file := range pkg.GoFiles {
			for _, name := range declared(t, filepath.Join(folder, file)) {
				name := strings.TrimSuffix(root+"/"+filepath.ToSlash(rel), "/.") + "." + name
				require.True(t, tried[name], "%s is in no list of this file", name)
				public++
			}
		}
		return nil
	}))
	require.Greater(t, public, len(functions)+len(handles)+len(data), "every folder was looked at")
}

const root = "github.com/cupool/cupool"

// declared are the public functions of a file, and the types that have methods or may have them
// from what they embed.
func declared(t *testing.T, file string) (names []string) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type)
			}
			if ast.IsExported(name) && d.Name.IsExported() {
				names = append(names, name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				s, ok := s.(*ast.TypeSpec)
				if !ok || !s.Name.IsExported() {
					continue
				}
				if body, ok := s.Type.(*ast.StructType); ok {
					for _, field := range body.Fields.List {
						if field.Names == nil {
							names = append(names, s.Name.Name)
						}
					}
				}
			}
		}
	}
	return names
}

// receiver is the name of the type of a method.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return fmt.Sprintf("%T", x)
}

// TestArgumentsOfNothing: no method panics that is given nil or zero handles, functions and
// contexts.
func TestArgumentsOfNothing(t *testing.T) {
	c := pooltest.Open(t, cupool.Config{Driver: pooltest.OpenHost(t), Backing: cupool.BackingVMM})
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	for _, make := range []func() any{
		func() any { return pooltest.NewPrivate(t, c, cupool.PoolConfig{}) },
		func() any { return pooltest.NewStream(t, c) },
		func() any { return testkit.Must(c.DefaultStream().Record()) },
		func() any { return testkit.Must(cupool.NewBuffer[float32](c, 10, nil)) },
		func() any { return e },
		func() any { return e.Scope() },
	} {
		handletest.Arguments(t, make)
	}
	var ctx context.Context // nil
	_, err = c.AllocContext(ctx, 100, nil)
	require.ErrorIs(t, err, cupool.ErrInvalidHandle)
	require.ErrorIs(t, c.DefaultStream().SyncContext(ctx), cupool.ErrInvalidHandle)
}

// TestArgumentsOfNothingOnGPU: no operation that a GPU computes panics that is given no tensor.
func TestArgumentsOfNothingOnGPU(t *testing.T) {
	gputest.Need(t)
	d, err := cuda.Open(0)
	require.NoError(t, err)
	c := pooltest.Open(t, cupool.Config{Driver: d})
	e, err := cupool.NewEngine(c)
	require.NoError(t, err)
	handletest.Arguments(t, func() any { return e })
	require.NoError(t, c.Close())
	require.NoError(t, d.Close())
}

// TestOverNoPool: what is made over a pool fails over none.
func TestOverNoPool(t *testing.T) {
	for _, a := range []cupool.Allocator{nil, (*cupool.Pool)(nil), new(cupool.Pool), new(cupool.Pool).WithLabel("x"), (*adaptor.Tracking)(nil), new(adaptor.Tracking)} {
		_, err := cupool.NewEngine(a)
		require.Error(t, err)
		_, err = cupool.NewBuffer[int32](a, 10, nil)
		require.Error(t, err)
		_, err = cupool.BufferFrom(a, []int32{1}, nil)
		require.Error(t, err)
	}
}
