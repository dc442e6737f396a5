// stand_in.cpp: what the class needs of libc10, libc10_cuda and the CUDA runtime, on the stand-in driver. It is
// enough to run the class without PyTorch, and no more.
#include <c10/core/AllocatorConfig.h>
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/env.h>
#include <torch/headeronly/version.h>

#include "stand_in.h"

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>

namespace {

c10::Allocator* registered;
thread_local c10::DeviceIndex present = 0;
thread_local cudaStream_t presentStream = nullptr;

} // namespace

namespace stand_in {

std::vector<Report> reports;
bool profiling = false;
int freeCallbacks = 0;
std::map<void*, size_t> plain;

c10::Allocator* registeredAllocator() { return registered; }
void setStream(cudaStream_t stream) { presentStream = stream; }

} // namespace stand_in

namespace c10 {

Error::Error(SourceLocation, std::string msg) : Error(std::move(msg)) {}
Error::Error(std::string msg, Backtrace, const void* caller) : msg_(msg), what_without_backtrace_(msg), caller_(caller) {}
const char* Error::what() const noexcept { return msg_.c_str(); }
#if TORCH_VERSION_MINOR >= 14
OutOfMemoryError::OutOfMemoryError(SourceLocation where, std::string msg) : Error(where, std::move(msg)) {}
NotImplementedError::NotImplementedError(SourceLocation where, std::string msg) : Error(where, std::move(msg)) {}
ValueError::ValueError(SourceLocation where, std::string msg) : Error(where, std::move(msg)) {}
#endif

namespace detail {
[[noreturn]] void torchCheckFail(const char* f, const char* file, uint32_t line, const std::string& msg) {
  throw Error({f, file, line}, msg);
}
[[noreturn]] void torchCheckFail(const char* f, const char* file, uint32_t line, const char* msg) {
  throw Error({f, file, line}, msg);
}
[[noreturn]] void torchInternalAssertFail(const char* f, const char* file, uint32_t line, const char* condition,
                                          const char* msg) {
  throw Error({f, file, line}, std::string(condition) + " " + msg);
}
[[noreturn]] void torchInternalAssertFail(const char* f, const char* file, uint32_t line, const char* condition,
                                          const std::string& msg) {
  throw Error({f, file, line}, condition + (" " + msg));
}
void deleteNothing(void*) {}
} // namespace detail

Warning::Warning(warning_variant_t type, const SourceLocation& where, std::string msg, bool verbatim)
    : type_(type), source_location_(where), msg_(std::move(msg)), verbatim_(verbatim) {}
Warning::Warning(warning_variant_t type, SourceLocation where, detail::CompileTimeEmptyString, bool verbatim)
    : Warning(type, where, std::string(), verbatim) {}
Warning::Warning(warning_variant_t type, SourceLocation where, const char* msg, bool verbatim)
    : Warning(type, where, std::string(msg), verbatim) {}
const std::string& Warning::msg() const { return msg_; }
void warn(const Warning& warning) { std::fprintf(stderr, "warning: %s\n", warning.msg().c_str()); }
namespace WarningUtils {
bool get_warnAlways() noexcept { return true; }
} // namespace WarningUtils

DeviceAllocator::DeviceAllocator() = default;
DeviceAllocator::~DeviceAllocator() = default;
bool Allocator::is_simple_data_ptr(const DataPtr& p) const { return p.get() == p.get_context(); }
void SetAllocator(DeviceType, Allocator* allocator, uint8_t) { registered = allocator; }
bool memoryProfilingEnabled() { return stand_in::profiling; }
void reportMemoryUsageToProfiler(void* p, int64_t size, size_t allocated, size_t reserved, Device) {
  stand_in::reports.push_back({p, size, allocated, reserved});
}
void reportOutOfMemoryToProfiler(int64_t, size_t, size_t, Device) {}

namespace CachingAllocator {
AcceleratorAllocatorConfig::AcceleratorAllocatorConfig() { roundup_power2_divisions_.assign(16, 0); }
AcceleratorAllocatorConfig& AcceleratorAllocatorConfig::instance() {
  static auto* config = new AcceleratorAllocatorConfig();
  return *config;
}
#if TORCH_VERSION_MINOR >= 14
std::function<void(const std::string&)>& AcceleratorAllocatorConfig::getConfigParserHook() {
  static std::function<void(const std::string&)> hook;
  return hook;
}
#endif
// Three settings are enough: "roundup_power2_divisions:N", "max_split_size_mb:N" and "expandable_segments:True".
void AcceleratorAllocatorConfig::parseArgs(const std::string& text) {
  last_allocator_settings_ = text;
  const auto number = [&text](const std::string& key, size_t otherwise) {
    const auto at = text.find(key + ":");
    return at == std::string::npos ? otherwise : std::stoul(text.substr(at + key.size() + 1));
  };
  roundup_power2_divisions_.assign(16, number("roundup_power2_divisions", 0));
  const size_t split = number("max_split_size_mb", 0);
  max_split_size_ = split > 0 ? split << 20 : std::numeric_limits<size_t>::max();
  max_non_split_rounding_size_ = 20 << 20;
  use_expandable_segments_ = text.find("expandable_segments:True") != std::string::npos;
}
} // namespace CachingAllocator

namespace utils {
std::optional<std::string> get_env(const char* name) noexcept {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}
std::optional<bool> check_env(const char* name) {
  const auto value = get_env(name);
  return value ? std::optional<bool>(*value == "1") : std::nullopt;
}
} // namespace utils

std::string demangle(const char* name) { return name; }

std::ostream& operator<<(std::ostream& out, DeviceType) { return out << "cuda"; }
std::ostream& operator<<(std::ostream& out, const Device& d) { return out << "cuda:" << static_cast<int>(d.index()); }

namespace impl {
std::atomic<const PyInterpreter*> GPUTrace::gpuTraceState{nullptr};
bool GPUTrace::haveState = false;
std::array<std::atomic<const DeviceGuardImplInterface*>, static_cast<size_t>(DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES)>
    device_guard_impl_registry;
} // namespace impl

ApproximateClockToUnixTimeConverter::ApproximateClockToUnixTimeConverter() = default;
std::function<time_t(approx_time_t)> ApproximateClockToUnixTimeConverter::makeConverter() {
  return [](approx_time_t) { return getTimeSinceEpoch(); };
}

C10_DEFINE_REGISTRY(FreeCudaMemoryCallbacksRegistry, FreeMemoryCallback)

namespace {
struct CountingCallback : FreeMemoryCallback {
  bool Execute() override {
    stand_in::freeCallbacks++;
    return false;
  }
};
} // namespace
REGISTER_FREE_MEMORY_CALLBACK("counting", CountingCallback)

namespace cuda {
DeviceIndex device_count() noexcept { return 1; }
cudaError_t GetDevice(DeviceIndex* device) {
  *device = present;
  return cudaSuccess;
}
cudaError_t SetDevice(DeviceIndex device, bool) {
  present = device;
  return cudaSuccess;
}
cudaError_t MaybeSetDevice(DeviceIndex device) { return SetDevice(device, false); }
DeviceIndex ExchangeDevice(DeviceIndex to) {
  const auto from = present;
  present = to;
  return from;
}
CUDAStream wrap(cudaStream_t stream) {
  return CUDAStream(CUDAStream::UNCHECKED, Stream(Stream::UNSAFE, Device(DeviceType::CUDA, 0),
                                                  static_cast<StreamId>(reinterpret_cast<intptr_t>(stream))));
}
CUDAStream getCurrentCUDAStream(DeviceIndex) { return wrap(presentStream); }
CUDAStream getDefaultCUDAStream(DeviceIndex) { return wrap(nullptr); }
CUDAStream getStreamFromPool(bool, DeviceIndex) { return wrap(nullptr); }
CUDAStream getStreamFromPool(int, DeviceIndex) { return wrap(nullptr); }
void setCurrentCUDAStream(CUDAStream stream) { presentStream = stream.stream(); }
cudaStream_t CUDAStream::stream() const { return reinterpret_cast<cudaStream_t>(stream_.id()); }
bool CUDAStream::query() const { return true; }
void CUDAStream::synchronize() const {}
#if TORCH_VERSION_MINOR >= 14
CUDAErrorLogCapture::CUDAErrorLogCapture() noexcept = default;
void c10_cuda_check_implementation(int32_t err, const char* file, const char* f, uint32_t line, bool,
                                   CUDAErrorLogCapture*) {
#else
void c10_cuda_check_implementation(int32_t err, const char* file, const char* f, uint32_t line, bool) {
#endif
  TORCH_CHECK(err == 0, "CUDA error ", err, " in ", f, " of ", file, ":", line);
}

namespace CUDACachingAllocator {
std::atomic<CUDAAllocator*> allocator{nullptr};
void CUDAAllocatorConfig::parseArgs(const std::string&) {}
} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10

extern "C" {
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaMalloc(void** p, size_t size) {
  *p = std::aligned_alloc(512, (size + 511) / 512 * 512);
  stand_in::plain[*p] = size;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  stand_in::plain.erase(p);
  std::free(p);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = 1 << 30;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void*, const void*, size_t, cudaMemcpyKind) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemcpyPeerAsync(void*, int, const void*, int, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) { return cudaErrorNotSupported; }
cudaError_t cudaIpcCloseMemHandle(void*) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
}
