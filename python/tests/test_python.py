"""The package on a stand-in of PyTorch, of libcupool.so and of the class: python3 -m unittest discover python/tests.

Nothing here needs PyTorch or a GPU. A C compiler makes the stand-in of the library; without one its tests are
skipped.
"""

import ctypes
import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import textwrap
import types
import unittest
import zipfile
from unittest import mock

PYTHON = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PYTHON))

COMPILER = shutil.which(os.environ.get("CC", "cc"))

# libcupool.so as far as the package calls it, and the class's three functions. It writes down what it is asked.
STAND_IN = """
#include <cupool.h>
#include <stdio.h>
#include <string.h>
static char said[4096], text[256];
static void say(const char *what) { strcat(said, what); strcat(said, ";"); }
const char *stand_in_said(void) { static char out[4096]; strcpy(out, said); said[0] = 0; return out; }
static cupool_status fail(cupool_status s, const char *what) { snprintf(text, sizeof text, "%s", what); return s; }
const char *cupool_last_error(void) noexcept_ { return text; }
int cupool_version(void) noexcept_ { return CUPOOL_VERSION; }
cupool_status cupool_alloc(int d, size_t n, void *s, void **p) noexcept_ {
  (void)d; (void)s;
  if (n > 1000000) return fail(CUPOOL_ERROR_OUT_OF_MEMORY, "no memory for it");
  *p = (void *)(n * 512); return CUPOOL_OK;
}
cupool_status cupool_free(void *p) noexcept_ { char b[64]; snprintf(b, sizeof b, "free %zu", (size_t)p / 512); say(b); return CUPOOL_OK; }
cupool_status cupool_record_stream(void *p, void *s) noexcept_ { (void)p; (void)s; return CUPOOL_OK; }
cupool_status cupool_forget_stream(int d, void *s) noexcept_ { char b[64]; snprintf(b, sizeof b, "forget %d %zu", d, (size_t)s); say(b); return CUPOOL_OK; }
cupool_status cupool_open(int d, const cupool_config *c) noexcept_ { (void)d; (void)c; return CUPOOL_OK; }
cupool_status cupool_settings(int d, char *t, size_t n, size_t *l) noexcept_ {
  (void)d; *l = 9; if (n) snprintf(t, n, "limit:8G\\n"); return CUPOOL_OK;
}
cupool_status cupool_memory_info(int d, size_t *f, size_t *t, size_t *l) noexcept_ { (void)d; if (f) *f = 5; if (t) *t = 7; if (l) *l = 3; return CUPOOL_OK; }
cupool_status cupool_set_limit(int d, size_t n) noexcept_ { (void)d; (void)n; return CUPOOL_OK; }
cupool_status cupool_wait(int d) noexcept_ { (void)d; return CUPOOL_OK; }
cupool_status cupool_trim(int d, cupool_pool_id p, size_t k, size_t *r) noexcept_ { (void)d; (void)p; (void)k; if (r) *r = 4096; return CUPOOL_OK; }
static const char *names[8];
cupool_status cupool_pool_named(int d, const char *n, const cupool_pool_config *c, cupool_pool_id *p) noexcept_ {
  (void)d; (void)c;
  for (uint64_t i = 1; i < 8; i++) {
    if (!names[i]) names[i] = strdup(n);
    if (!strcmp(names[i], n)) { p->first = 0; p->second = i; return CUPOOL_OK; }
  }
  return CUPOOL_ERROR_INVALID;
}
static const char *name(cupool_pool_id p) { return p.first ? "all" : p.second ? names[p.second] : "main"; }
#define POOL(f, s) { char b[99]; snprintf(b, sizeof b, "%s %s", s, name(p)); (void)d; say(b); return CUPOOL_OK; }
cupool_status cupool_pool_release(int d, cupool_pool_id p) noexcept_ POOL(release, "release")
cupool_status cupool_begin(int d, cupool_pool_id p, cupool_filter f, void *u) noexcept_ { (void)f; (void)u; POOL(begin, "begin") }
cupool_status cupool_end(int d, cupool_pool_id p) noexcept_ POOL(end, "end")
cupool_status cupool_sleep(int d, cupool_pool_id p, int keep) noexcept_ { POOL(sleep, keep ? "keep" : "drop") }
cupool_status cupool_wake(int d, cupool_pool_id p) noexcept_ POOL(wake, "wake")
cupool_status cupool_get_stats(int d, cupool_pool_id p, cupool_stats *s) noexcept_ {
  (void)d; (void)p;
  if (s->struct_size != sizeof *s) return fail(CUPOOL_ERROR_INVALID, "the struct has another size");
  s->reserved_bytes.large.peak = 11; s->streams = 13; s->oversize_segments.freed = 17; return CUPOOL_OK;
}
cupool_status cupool_reset_peaks(int d) noexcept_ { (void)d; return CUPOOL_OK; }
cupool_status cupool_label_push(const char *l) noexcept_ { say(l); return CUPOOL_OK; }
cupool_status cupool_label_pop(void) noexcept_ { say("pop"); return CUPOOL_OK; }
cupool_status cupool_history_start(int d, size_t e, size_t s) noexcept_ { (void)d; (void)e; (void)s; return CUPOOL_OK; }
cupool_status cupool_history_stop(int d) noexcept_ { (void)d; return CUPOOL_OK; }
cupool_status cupool_write(int d, int f, const char *p) noexcept_ { (void)d; (void)f; return fail(CUPOOL_ERROR_IO, p); }
cupool_status cupool_serve(const char *a, char *u, size_t n) noexcept_ { snprintf(u, n, "http://%s/debug/cupool/", a); return CUPOOL_OK; }
cupool_status cupool_serve_stop(void) noexcept_ { return CUPOOL_OK; }
void *cupool_torch_alloc(ptrdiff_t n, int d, void *s) noexcept_ { (void)n; (void)d; (void)s; return 0; }
void cupool_torch_free(void *p, ptrdiff_t n, int d, void *s) noexcept_ { (void)p; (void)n; (void)d; (void)s; }
void cupool_torch_record_stream(void *p, void *s) noexcept_ { (void)p; (void)s; }
/* The class. */
static int installed, refuse;
int stand_in_refuse(int r) { installed = 0; refuse = r; return 0; }
int cupool_torch_built_for(void) { return 211; }
int cupool_torch_installed(void) { return installed; }
int cupool_torch_open(int d, char *t, size_t n) {
  char b[32];
  snprintf(b, sizeof b, "open %d", d); say(b); snprintf(t, n, "no device %d", d);
  return d > 1;
}
int cupool_torch_install(const char *l, const char *s, char *t, size_t n) {
  (void)l; say(s); snprintf(t, n, refuse ? "CUDA was used in this process already" : ""); installed = !refuse; return refuse;
}
"""


def build(directory):
    source = pathlib.Path(directory, "stand_in.c")
    source.write_text(STAND_IN.replace("noexcept_", ""))
    out = pathlib.Path(directory, "stand_in.so")
    subprocess.run([COMPILER, "-std=gnu99", "-Wall", "-Werror", "-shared", "-fPIC", f"-I{PYTHON.parent}/capi",
                    source, "-o", out], check=True)
    return str(out)


class Tensor:
    is_cuda = True


def stand_in_torch(version="2.11.0+cu130", initialized=False):
    """torch as far as the package asks it."""
    torch = types.ModuleType("torch")
    torch.__version__, torch.Tensor = version, Tensor
    torch.version = types.SimpleNamespace(cuda="13.0")
    torch._C = types.SimpleNamespace(_GLIBCXX_USE_CXX11_ABI=True)
    plain = mock.Mock()
    torch.cuda = types.SimpleNamespace(
        is_initialized=lambda: torch.cuda.ready, ready=initialized, init=lambda: setattr(torch.cuda, "ready", True),
        queued=[], _lazy_call=lambda f: torch.cuda.queued.append(f), Stream=type("Stream", (), {}),
        Event=type("Event", (), {}),
        _utils=types.SimpleNamespace(_get_device_index=lambda d, optional=False: 0 if d is None else d),
        memory=types.SimpleNamespace(CUDAPluggableAllocator=mock.Mock(return_value=plain),
                                     change_current_allocator=mock.Mock()))
    return torch


@unittest.skipUnless(COMPILER, "no C compiler")
class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp()
        cls.library = build(cls.directory)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.directory)

    def setUp(self):
        self.torch = stand_in_torch()
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("CUPOOL", "PYTORCH"))}
        environment |= {"CUPOOL_LIBRARY": self.library, "CUPOOL_TORCH_BINARY": self.library,
                        "CUPOOL_CACHE": self.directory}
        modules = {k: v for k, v in sys.modules.items() if k.split(".")[0] != "cupool"}
        for patch in (mock.patch.dict(os.environ, environment, clear=True),
                      mock.patch.dict(sys.modules, modules | {"torch": self.torch}, clear=True)):
            patch.start()
            self.addCleanup(patch.stop)
        self.raw = ctypes.CDLL(self.library)
        self.raw.stand_in_said.restype = ctypes.c_char_p
        self.raw.stand_in_refuse(0)
        self.said()

    def said(self):
        return self.raw.stand_in_said().decode().split(";")[:-1]

    def load(self):
        return importlib.import_module("cupool.torch")

    # -------------------------------------------------- the pool

    def test_statistics_are_plain(self):
        import cupool

        stats = cupool.stats()
        self.assertEqual(stats["reserved_bytes"]["large"]["peak"], 11)
        self.assertEqual((stats["streams"], stats["oversize_segments"]["freed"]), (13, 17))
        self.assertNotIn("struct_size", stats)

    def test_functions(self):
        import cupool

        self.assertEqual(cupool.version(), "0.1")
        self.assertEqual(cupool.trim(), 4096)
        self.assertEqual(cupool.settings(), "limit:8G\n")
        self.assertEqual(cupool.serve("localhost:1"), "http://localhost:1/debug/cupool/")
        with cupool.label("cache"):
            pass
        self.assertEqual(self.said(), ["cache", "pop"])
        with self.assertRaisesRegex(ValueError, "torch, pprof, json"):
            cupool.write("x", "xml")
        with self.assertRaisesRegex(cupool.CupoolError, "/x") as caught:
            cupool.write("/x")
        self.assertEqual(caught.exception.code, 19)

    def test_paths(self):
        """A file has the name that was given, of whatever type."""
        import cupool

        for path in "/x", b"/x", pathlib.Path("/x"):
            with self.assertRaisesRegex(cupool.CupoolError, "^/x"):
                cupool.write(path)

    def test_texts_that_c_would_cut(self):
        import cupool

        self.load().install()
        self.said()
        for call in cupool.write, cupool.serve, lambda name: cupool.label(name).__enter__(), lambda name: cupool.torch.tag(name).__enter__():
            with self.assertRaisesRegex(ValueError, "embedded null byte"):
                call("a\0b")
        self.assertEqual(self.said(), [])

    def test_numbers_that_c_would_change(self):
        import cupool

        for n in -1, 2**64:
            for call in (cupool.set_limit, lambda n: cupool.trim(keep=n), lambda n: cupool.history(events=n),
                         lambda n: cupool.history(sample_bytes=n)):
                with self.assertRaisesRegex(ValueError, f"{n} is not between 0"):
                    call(n)
        cupool.set_limit(2**64 - 1)

    def test_out_of_memory(self):
        import cupool
        from cupool import _library

        with self.assertRaises(cupool.OutOfMemoryError) as caught:
            _library.alloc(0, 2000000, None)
        self.assertIsInstance(caught.exception, MemoryError)

    def test_a_library_that_is_missing(self):
        os.environ["CUPOOL_LIBRARY"] = "/nowhere/libcupool.so"
        import cupool

        with self.assertRaises(OSError):
            cupool.stats()

    def test_import_opens_nothing(self):
        code = "import sys; sys.path.insert(0, sys.argv[1]); import cupool, cupool.cupy, cupool.numba; " \
               "print(cupool._library._loaded, 'libcupool' in open('/proc/self/maps').read())"
        done = subprocess.run([sys.executable, "-c", code, str(PYTHON)], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.split(), ["None", "False"])

    # -------------------------------------------------- PyTorch

    def test_install(self):
        module = self.load()
        self.assertFalse(module.installed())
        module.install({"limit": "8GiB", "decay": "30s"})
        self.assertTrue(module.installed())
        self.assertEqual(self.said(), ["limit:8GiB,decay:30s"])
        module.install()  # again: nothing
        self.assertEqual(self.said(), [])
        from cupool import _library

        self.assertIsNone(_library._loaded)  # the library is opened with CUDA

    def test_settings_of_install_come_first(self):
        import cupool

        cupool.stats()
        self.assertEqual(self.said(), [])
        self.load().install("limit:8GiB")
        cupool.stats()
        cupool.trim()
        cupool.stats(1)
        self.assertEqual(self.said(), ["limit:8GiB", "open 0", "open 1"])
        self.assertTrue(self.torch.cuda.ready)
        with self.assertRaisesRegex(RuntimeError, "no device 7"):
            cupool.stats(7)

    def test_refuses_what_was_used(self):
        self.torch.cuda.ready = True
        early = sys.modules["early"] = types.ModuleType("early")
        early.kept = Tensor()
        module = self.load()
        with self.assertRaisesRegex(module.InstallError, "module early keeps a CUDA tensor, kept"):
            module.install()

    def test_names_who_used_it_first(self):
        module = self.load()
        self.assertEqual(len(self.torch.cuda.queued), 1)
        user = {"__name__": "somebody", "note": self.torch.cuda.queued[0]}
        exec(compile("\n\nnote()", "somebody.py", "exec"), user)
        self.torch.cuda.ready = True
        with self.assertRaisesRegex(module.InstallError, r"first to use it was somebody \(somebody.py, line 3\)"):
            module.install()

    def test_refuses_by_the_class(self):
        module = self.load()
        self.raw.stand_in_refuse(1)
        with self.assertRaisesRegex(module.InstallError, "used in this process already. It happened before"):
            module.install()
        self.assertFalse(module.installed())

    def test_another_backend_stays(self):
        for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            with mock.patch.dict(os.environ, {variable: "max_split_size_mb:64, backend: cudaMallocAsync"}):
                with self.assertRaisesRegex(self.load().InstallError, variable):
                    self.load().install()

    def test_a_class_of_another_version(self):
        self.torch.__version__ = "2.12.0"
        with self.assertRaisesRegex(self.load().InstallError, "built for PyTorch 2.11, and this is 2.12.0"):
            self.load().install()

    def test_plain_interface(self):
        del os.environ["CUPOOL_TORCH_BINARY"]
        self.torch.__version__ = "2.5.1"
        module = self.load()
        with self.assertRaisesRegex(module.InstallError, "2.9 or later"):
            module.install(fallback=False)
        with self.assertWarnsRegex(UserWarning, "plain interface.*CUDA graphs.*2.9 or later"):
            module.install()
        self.torch.cuda.memory.change_current_allocator.assert_called_once()
        self.assertTrue(module.installed())

    def test_plain_interface_says_what_goes_without(self):
        del os.environ["CUPOOL_TORCH_BINARY"]
        self.torch.__version__ = "2.5.1"
        with self.assertWarnsRegex(UserWarning, "has no effect.*CUPOOL_ALLOC_CONF=limit:8GiB,decay:30s"):
            self.load().install({"limit": "8GiB", "decay": "30s"})

    def test_cache(self):
        del os.environ["CUPOOL_TORCH_BINARY"]
        module = self.load()
        with mock.patch.object(module._build, "build", side_effect=lambda file: pathlib.Path(file).touch()) as build:
            first = module.binary()
            self.assertEqual(module.binary(), first)
            build.assert_called_once()
            self.assertIn("2.11.0+cu130-abi1", str(first))
            self.torch.__version__ = "2.11.1+cu130"
            self.assertNotEqual(module.binary(), first)

    def test_class_that_cannot_be_built(self):
        """Whatever the system lacks for it is a BuildError, so that the plain interface is taken."""
        del os.environ["CUPOOL_TORCH_BINARY"]
        module = self.load()
        with tempfile.TemporaryDirectory() as d, mock.patch.dict(os.environ, {"CUPOOL_CACHE": d}):
            pathlib.Path(d, "compiler").write_text("not executable")
            for what, patch in {
                "no locks": mock.patch("fcntl.flock", side_effect=OSError("no locks available")),
                "usable temporary": mock.patch("tempfile.TemporaryDirectory", side_effect=FileNotFoundError("no usable temporary directory")),
                "C\\+\\+ compiler": mock.patch.dict(os.environ, {"CXX": d + "/compiler"}),
            }.items():
                with patch, self.assertRaisesRegex(module._build.BuildError, what):
                    module.binary()

    def test_compiler_with_arguments(self):
        module = self.load()
        with mock.patch.dict(os.environ, {"CXX": f"'{sys.executable}' -c 'print(\"x86_64-linux\")'"}):
            self.assertEqual(module._build.machine(), "x86_64")

    def test_class_of_the_wheel(self):
        """It is taken where this system's libraries are new enough for it, and else built here."""
        del os.environ["CUPOOL_TORCH_BINARY"]
        module = self.load()
        with tempfile.TemporaryDirectory() as d, mock.patch.object(module, "__file__", d + "/__init__.py"), \
                mock.patch.dict(os.environ, {"CUPOOL_CACHE": d + "/cache"}), \
                mock.patch.object(module._build, "build", side_effect=lambda file: pathlib.Path(file).touch()) as build:
            shipped = pathlib.Path(d, "binaries", f"cupool_torch-2.11-abi1-{os.uname().machine}.so")
            shipped.parent.mkdir()
            shipped.write_bytes(b"of another system")
            self.assertNotEqual(module.binary(), shipped)
            build.assert_called_once()
            shutil.copy(self.library, shipped)
            self.assertEqual(module.binary(), shipped)
            for development in ("2.11.0.dev20251224+cu130", "2.11.0a0+gitabcdef", "2.11.0rc1"):
                with mock.patch.object(module.torch, "__version__", development):
                    self.assertNotEqual(module.binary(), shipped)
            self.assertEqual(build.call_count, 4)

    def test_tags(self):
        module = self.load()
        module.install()
        self.said()
        with module.tag("weights"):
            with module.tag("weights"):
                pass
            with module.tag("cache"):
                with self.assertRaisesRegex(ValueError, "below 'cache'"):
                    with module.tag("weights"):
                        pass
        module.sleep("weights")
        module.sleep("cache", keep=False)
        module.sleep()
        for f in module.sleep, module.wake:
            with self.assertRaisesRegex(ValueError, "'wights'.*'cache', 'weights'"):
                f("wights")
            with self.assertRaisesRegex(ValueError, "'weights'.*device 1"):
                f("weights", device=1)
        module.wake("weights")
        module.wake()
        self.assertEqual(self.said(), [
            "open 0", "begin weights", "begin cache", "end cache", "release cache", "end weights", "release weights",
            "keep weights", "drop cache", "keep all", "wake weights", "wake all"])

    def test_tags_need_an_install(self):
        module = self.load()
        with self.assertRaisesRegex(module.InstallError, "install"):
            with module.tag("weights"):
                pass

    def test_program(self):
        with tempfile.TemporaryDirectory() as d:
            pathlib.Path(d, "torch.py").write_text("raise SystemExit('the stand-in is asked')\n")
            pathlib.Path(d, "mine.py").write_text("x = 7\n")
            pathlib.Path(d, "train.py").write_text(textwrap.dedent("""
                import sys, mine
                print(__name__, sys.argv[1:], mine.x, sys.modules["__main__"].__file__ == __file__)
            """))
            with mock.patch.object(sys, "argv", ["cupool.torch", "--settings", "limit:1G", d + "/train.py", "a", "b"]), \
                    mock.patch.object(sys, "path", list(sys.path)), mock.patch("sys.stdout") as out:
                importlib.import_module("cupool.torch.__main__")
            printed = "".join(c.args[0] for c in out.write.call_args_list)
            self.assertEqual(printed.strip(), "__main__ ['a', 'b'] 7 True")
            self.assertEqual(self.said(), ["limit:1G"])

    def test_program_finds_its_modules(self):
        """They are beside the file that a link leads to, and the directory that python -m looks in has none."""
        with tempfile.TemporaryDirectory() as d:
            pathlib.Path(d, "train.py").write_text("import sys; print(sys.path[:2])\n")
            there, links = pathlib.Path(d, "there"), pathlib.Path(d, "links")
            there.mkdir()
            links.mkdir()
            links.joinpath("run.py").symlink_to(pathlib.Path(d, "train.py"))
            before = os.getcwd()
            os.chdir(there)
            self.addCleanup(os.chdir, before)
            with mock.patch.object(sys, "argv", ["cupool.torch", str(links / "run.py")]), \
                    mock.patch.object(sys, "path", [os.getcwd(), *sys.path]), mock.patch("sys.stdout") as out:
                importlib.import_module("cupool.torch.__main__")
            self.assertEqual("".join(c.args[0] for c in out.write.call_args_list).strip(),
                             str([os.path.realpath(d), sys.path[0]]))
            os.chdir(before)

    def test_program_usage(self):
        for arguments, code, printed in (["-h"], 0, True), ([], 1, False), (["--settings=limit:1G", "train.py"], 1, False):
            sys.modules.pop("cupool.torch.__main__", None)
            with mock.patch.object(sys, "argv", ["cupool.torch", *arguments]), mock.patch("sys.stdout") as out, \
                    self.assertRaises(SystemExit) as end:
                importlib.import_module("cupool.torch.__main__")
            self.assertEqual(1 if end.exception.code else 0, code, arguments)
            self.assertEqual("train.py ARGS" in "".join(c.args[0] for c in out.write.call_args_list), printed, arguments)
            if arguments[1:]:
                self.assertIn("--settings=limit:1G is no option", end.exception.code)

    # -------------------------------------------------- CuPy and Numba

    def test_cupy(self):
        cupy = types.ModuleType("cupy")
        destroyed = []

        class Stream:
            def __init__(self, ptr, device_id):
                self.ptr, self.device_id = ptr, device_id

            def __del__(self):
                destroyed.append(self.ptr)

        oom = type("OutOfMemoryError", (MemoryError,), {})
        cupy.cuda = types.SimpleNamespace(
            PythonFunctionAllocator=lambda alloc, free: types.SimpleNamespace(malloc=(alloc, free)),
            Stream=Stream, set_allocator=mock.Mock(), get_current_stream=lambda: types.SimpleNamespace(ptr=0),
            memory=types.SimpleNamespace(OutOfMemoryError=oom))
        cupy.get_default_memory_pool = lambda: types.SimpleNamespace(malloc="its own")
        sys.modules["cupy"] = cupy
        from cupool import cupy as module

        module.install()
        module.install()
        cupy.cuda.set_allocator.assert_called_once()
        alloc, free = cupy.cuda.set_allocator.call_args[0][0]
        self.assertEqual(alloc(100, 0), 51200)
        free(51200, 0)
        free(0, 0)
        self.assertEqual(self.said(), ["free 100"])
        Stream(77, 1)
        Stream(0, -1)
        self.assertEqual((destroyed, self.said()), ([77, 0], ["forget 1 77"]))
        with self.assertRaises(oom):
            alloc(2000000, 0)
        module.uninstall()
        self.assertEqual(cupy.cuda.set_allocator.call_args[0][0], "its own")

    def test_numba(self):
        names = ("numba", "numba.cuda", "numba.cuda.cudadrv", "numba.cuda.cudadrv.driver")
        numba, cuda, cudadrv, driver = (types.ModuleType(n) for n in names)
        numba.cuda, cuda.cudadrv, cudadrv.driver = cuda, cudadrv, driver
        cuda.HostOnlyCUDAMemoryManager = type("Base", (), {"initialize": lambda self: None})
        cuda.MemoryInfo = lambda free, total: (free, total)
        cuda.set_memory_manager = mock.Mock()
        driver.MemoryPointer = lambda context, pointer, size, finalizer: (pointer, size, finalizer)
        sys.modules.update(zip(names, (numba, cuda, cudadrv, driver)))
        from cupool import numba as module

        module.install()
        manager = cuda.set_memory_manager.call_args[0][0]()
        manager.context = types.SimpleNamespace(device=types.SimpleNamespace(id=0))
        manager.initialize()
        driver.binding = types.SimpleNamespace(CUdeviceptr=lambda address: ("NVIDIA's", address))
        pointer, size, finalizer = manager.memalloc(100)
        self.assertEqual((pointer, size, manager.interface_version), (("NVIDIA's", 51200), 100, 1))
        driver.USE_NV_BINDING = False
        self.assertEqual(manager.memalloc(100)[0].value, 51200)
        self.assertEqual(manager.get_memory_info(), (5, 7))
        finalizer()
        self.assertEqual(self.said(), ["free 100"])


class Structs(unittest.TestCase):
    """What Python takes for the structs of cupool.h is what C does."""

    @unittest.skipUnless(COMPILER, "no C compiler")
    def test_layout(self):
        from cupool import _library

        structs = {"cupool_stats": _library.Stats, "cupool_config": _library.Config, "cupool_pool_id": _library.PoolId}
        prints = "".join(
            f'printf("%zu\\n", sizeof({c}));' + "".join(
                f'printf("%zu\\n", offsetof({c}, {name}));' for name, _ in struct._fields_)
            for c, struct in structs.items())
        with tempfile.TemporaryDirectory() as d:
            pathlib.Path(d, "a.c").write_text(
                f"#include <cupool.h>\n#include <stdio.h>\nint main(void) {{ {prints} return 0; }}\n")
            subprocess.run([COMPILER, f"-I{PYTHON.parent}/capi", d + "/a.c", "-o", d + "/a"], check=True)
            got = list(map(int, subprocess.run([d + "/a"], capture_output=True, check=True).stdout.split()))
        want = []
        for struct in structs.values():
            want.append(ctypes.sizeof(struct))
            want += [getattr(struct, name).offset for name, _ in struct._fields_]
        self.assertEqual(got, want)


class Wheel(unittest.TestCase):
    def test_wheel(self):
        sys.path.insert(0, str(PYTHON))
        import wheel

        with tempfile.TemporaryDirectory() as d:
            lib = pathlib.Path(d, "libcupool.so")
            lib.write_bytes(b"a library")
            with mock.patch.dict(os.environ, {"LIBCUPOOL": str(lib)}), \
                    mock.patch.object(wheel, "glibc", lambda data: (2, 28)), \
                    mock.patch.object(wheel, "licenses", lambda at: [("LICENSE", b"words")]):
                name = wheel.build_wheel(d)
                again = pathlib.Path(d, name).read_bytes()
                self.assertEqual(wheel.build_wheel(d), name)
                self.assertEqual(pathlib.Path(d, name).read_bytes(), again)
                with mock.patch.dict(os.environ, {"MANYLINUX": "2_17"}), self.assertRaisesRegex(SystemExit, "2.28"):
                    wheel.build_wheel(d)
                other = 0x3E if os.uname().machine == "aarch64" else 0xB7
                lib.write_bytes(bytes(18) + other.to_bytes(2, "little"))
                with mock.patch.dict(os.environ, {"TORCH_INCLUDES": "2.11=headers", "CXX": COMPILER}), \
                        self.assertRaisesRegex(SystemExit, "and the library is for (x86_64|aarch64): set CXX"):
                    wheel.build_wheel(d)
            self.assertRegex(name, r"^cupool-0\.1\.0-py3-none-manylinux_2_28_\w+\.whl$")
            with zipfile.ZipFile(pathlib.Path(d, name)) as z:
                names = z.namelist()
                record = z.read("cupool-0.1.0.dist-info/RECORD").decode().splitlines()
            self.assertEqual(len(record), len(names))
            for wanted in ("cupool/__init__.py", "cupool/torch/__main__.py", "cupool/src/allocator.cpp",
                           "cupool/include/cupool.h", "cupool/lib/libcupool.so", "cupool-0.1.0.dist-info/METADATA"):
                self.assertIn(wanted, names)
            self.assertFalse([n for n in names if "__pycache__" in n])

    def test_versions_agree(self):
        import wheel

        text = (PYTHON / "cupool" / "__init__.py").read_text()
        self.assertIn(f'__version__ = "{wheel.field("version")}"', text)


if __name__ == "__main__":
    unittest.main()
