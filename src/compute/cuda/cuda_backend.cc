// Backend on one CUDA device and one stream. Nothing but download() and synchronize() waits for it.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>

#include "compute/check_args.h"
#include "compute/cuda/check.h"
#include "compute/cuda/create_cuda.h"
#include "compute/cuda/device_memory.h"
#include "compute/cuda/kernels.h"
#include "compute/cuda/workspace.h"
#include "compute/host_memory.h"

namespace llorch::compute {
namespace {

using cuda::check_cuda;

class CudaBackend final : public Backend {
 public:
  using LayerEvents = std::array<cudaEvent_t, 2>;

  // Takes stream and events over.
  CudaBackend(int device, std::string name, cudaStream_t stream, const LayerEvents& layer_events,
              std::unique_ptr<cuda::Staging> staging)
      : device_(device),
        name_(std::move(name)),
        stream_(stream),
        layer_events_(layer_events),
        staging_(std::move(staging)) {}
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;
  ~CudaBackend() override {
    cudaSetDevice(device_);
    cudaStreamSynchronize(stream_);
    for (const cudaEvent_t event : layer_events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  std::string name() const override { return name_; }
  std::string device_class() const override {
    int major = 0;
    int minor = 0;
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_),
               "compute capability");
    check_cuda(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device_),
               "compute capability");
    return fmt::format("cuda-sm{}{}", major, minor);
  }

  std::int64_t free_bytes() const override {
    std::size_t free = 0;
    std::size_t total = 0;
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(free);
  }

  Result<Buffer> allocate(std::int64_t bytes) override {
    use_device();
    Result<Buffer> buffer = cuda::allocate_device(bytes, stream_);
    if (!buffer.ok()) return buffer.error().in(name_);
    return buffer;
  }

  void upload(std::span<const std::byte> host, void* device) override {
    use_device();
    staging_->copy(host, device, stream_);
  }

  void download(const void* device, std::span<std::byte> host) override {
    use_device();
    check_cuda(cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, stream_),
               "download");
    check_cuda(cudaStreamSynchronize(stream_), "download, or an op before it");
  }

  void synchronize() override {
    use_device();
    check_cuda(cudaStreamSynchronize(stream_), "synchronize, or an op before it");
  }

  // Rows are made contiguous on the host, then copied; the type stays the file's.
  Result<Weight> load_weight(const WeightSource& source) override {
    const Result<Weight> host = load_host_weight(source);
    if (!host.ok()) return host.error();
    Weight weight;
    weight.dtype = host->dtype;
    weight.rows = host->rows;
    weight.cols = host->cols;
    weight.use = host->use;
    const std::int64_t bytes = weight.rows * row_bytes(*host);
    Result<Buffer> storage = allocate(bytes);
    if (!storage.ok()) return storage.error().in(source.name);
    weight.storage = storage.take();
    weight.data = weight.storage.data();
    upload({static_cast<const std::byte*>(host->data), static_cast<std::size_t>(bytes)},
           weight.storage.data());
    return weight;
  }

  // Products are of floats with decoded weights, whatever the type.
  InputForm input_form(tensor::DType) const override { return InputForm::F32; }
  AttentionForm attention_form(tensor::DType) const override { return {}; }
  std::int32_t step_rows() const override { return cuda::kStepRows; }

  Status reserve(const StepLimits& limits) override {
    const Result<std::int64_t> bytes = cuda::workspace_bytes(limits);
    if (!bytes.ok()) return bytes.error().in(name_);
    if (*bytes == 0) return ok_status();
    Result<Buffer> workspace = allocate(*bytes);
    if (!workspace.ok()) return workspace.error().in("workspace");
    workspace_ = workspace.take();
    return ok_status();
  }

  // The host can be a whole step ahead of the device. Here it waits until the device is no more
  // than two layers behind, so that a step which is given up ends within two layers.
  bool aborted(const StepShape& shape) override {
    if (shape.abort == nullptr) return false;
    use_device();
    cudaEvent_t layer = layer_events_[next_event_];
    next_event_ = (next_event_ + 1) % layer_events_.size();
    check_cuda(cudaEventSynchronize(layer), "waiting for a layer, or an op in it");
    if (Backend::aborted(shape)) return true;
    check_cuda(cudaEventRecord(layer, stream_), "cudaEventRecord");
    return false;
  }

  void embed(const EmbedArgs& args) override { run(args, cuda::launch_embed); }
  void layer_norm(const LayerNormArgs& args) override { run(args, cuda::launch_layer_norm); }
  void rms_norm(const RmsNormArgs& args) override { run(args, cuda::launch_rms_norm); }
  void linear(const LinearArgs& args) override {
    check_args(args);
    use_device();
    for (const LinearTarget& target : args.targets) cuda::launch_linear(target, args.x, stream_);
  }
  void activation(const ActivationArgs& args) override { run(args, cuda::launch_activation); }
  void rope_angles(const RopeAnglesArgs& args) override { run(args, cuda::launch_rope_angles); }
  void rope(const RopeArgs& args) override { run(args, cuda::launch_rope); }
  void write_kv(const WriteKvArgs& args) override { run(args, cuda::launch_write_kv); }
  void attention(const AttentionArgs& args) override { run(args, cuda::launch_attention); }
  void gather_rows(const GatherRowsArgs& args) override { run(args, cuda::launch_gather_rows); }
  void softcap(const SoftcapArgs& args) override { run(args, cuda::launch_softcap); }
  void softmax(const SoftmaxArgs& args) override { run(args, cuda::launch_softmax); }
  void argmax(const ArgmaxArgs& args) override { run(args, cuda::launch_argmax); }

 private:
  // The current device belongs to the calling thread, which may serve several backends.
  void use_device() { check_cuda(cudaSetDevice(device_), "cudaSetDevice"); }

  template <class Args>
  void run(const Args& args, void (*launch)(const Args&, cudaStream_t)) {
    check_args(args);
    use_device();
    launch(args, stream_);
  }

  int device_;
  std::string name_;
  cudaStream_t stream_;
  LayerEvents layer_events_;  // recorded before each layer in turn
  std::size_t next_event_ = 0;
  std::unique_ptr<cuda::Staging> staging_;
  Buffer workspace_;
};

std::string describe(int device) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    return fmt::format("cuda:{} (unreadable)", device);
  }
  return fmt::format("cuda:{} ({}, sm_{}{})", device, properties.name, properties.major,
                     properties.minor);
}

Error no_such_device(int device, int num_devices, cudaError_t status) {
  std::string found;
  for (int i = 0; i < num_devices; ++i) found += (i > 0 ? ", " : "") + describe(i);
  if (num_devices == 0) {
    found = fmt::format("none ({})",
                        cudaGetErrorString(status != cudaSuccess ? status : cudaErrorNoDevice));
  }
  return {ErrorCode::Unavailable,
          fmt::format("cuda:{}: there is no such device; CUDA devices found: {}", device, found)};
}

Error device_failed(std::string_view name, std::string_view what, cudaError_t status) {
  return {ErrorCode::DeviceFailed,
          fmt::format("{}: {}: {}", name, what, cudaGetErrorString(status))};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(int device) {
  int num_devices = 0;
  const cudaError_t counted = cudaGetDeviceCount(&num_devices);
  if (counted != cudaSuccess) num_devices = 0;
  if (device < 0 || device >= num_devices) return no_such_device(device, num_devices, counted);
  const std::string name = describe(device);
  if (const cudaError_t status = cudaSetDevice(device); status != cudaSuccess) {
    return device_failed(name, "cannot be used", status);
  }
  if (const cudaError_t status = cuda::probe_kernels(); status != cudaSuccess) {
    return device_failed(name, "cannot run the compiled kernels", status);
  }
  Result<std::unique_ptr<cuda::Staging>> staging = cuda::Staging::make();
  if (!staging.ok()) return staging.error().in(name);
  cudaStream_t stream = nullptr;
  if (const cudaError_t status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      status != cudaSuccess) {
    return device_failed(name, "cannot make a stream", status);
  }
  CudaBackend::LayerEvents events{};
  for (cudaEvent_t& event : events) {
    if (const cudaError_t status = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        status != cudaSuccess) {
      return device_failed(name, "cannot make an event", status);
    }
  }
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(device, name, stream, events, staging.take()));
}

}  // namespace llorch::compute
