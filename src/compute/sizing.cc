#include "compute/sizing.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/host_limits.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cuda/packed_layout.h"
#include "compute/cuda/workspace.h"
#include "compute/host_memory.h"

namespace llorch::compute {
namespace {

// What a process takes of a GPU before its first buffer, and beside it of host memory (driver,
// runtime, the two page-locked halves that uploads go through). Measured on an H200 with driver
// 580; after a load on another card its own peak counts.
constexpr std::int64_t kCudaContextBytes = std::int64_t{529} << 20;
constexpr std::int64_t kCudaHostBytes = std::int64_t{135} << 20;

// cudaMalloc hands out multiples of 512 bytes from pieces of 2 MiB; larger buffers are whole
// pieces.
constexpr std::int64_t kCudaUnit = 512;
constexpr std::int64_t kCudaPiece = std::int64_t{2} << 20;
constexpr std::int64_t kCudaLarge = std::int64_t{1} << 20;

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

class Sizing : public SizingBackend {
 public:
  Sizing(const Sizing&) = delete;
  Sizing& operator=(const Sizing&) = delete;
  ~Sizing() override {
    for (const auto& [address, size] : ranges_) ::munmap(address, size);
  }

  // Whether it fits is for the reader of the sums to say.
  std::int64_t free_bytes() const override { return INT64_MAX; }
  Result<Buffer> allocate(std::int64_t bytes) override {
    count(bytes);
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
    void* address = bytes < 0 ? MAP_FAILED
                              : ::mmap(nullptr, size, PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
      return Error{ErrorCode::OutOfMemory,
                   fmt::format("{} bytes are more than a process can address", bytes)};
    }
    ranges_.emplace_back(address, size);
    return Buffer(address, bytes, [](void*) {});
  }
  void upload(std::span<const std::byte>, void*) override {}
  void download(const void*, std::span<std::byte>) override { refuse(); }
  void synchronize() override {}
  AttentionForm attention_form(tensor::DType) const override { return {}; }

  void embed(const EmbedArgs&) override { refuse(); }
  void layer_norm(const LayerNormArgs&) override { refuse(); }
  void rms_norm(const RmsNormArgs&) override { refuse(); }
  void linear(const LinearArgs&) override { refuse(); }
  void activation(const ActivationArgs&) override { refuse(); }
  void rope_angles(const RopeAnglesArgs&) override { refuse(); }
  void rope(const RopeArgs&) override { refuse(); }
  void write_kv(const WriteKvArgs&) override { refuse(); }
  void attention(const AttentionArgs&) override { refuse(); }
  void gather_rows(const GatherRowsArgs&) override { refuse(); }
  void softcap(const SoftcapArgs&) override { refuse(); }
  void softmax(const SoftmaxArgs&) override { refuse(); }
  void argmax(const ArgmaxArgs&) override { refuse(); }

 protected:
  Sizing() = default;
  virtual void count(std::int64_t bytes) = 0;

  static Weight describe(const WeightSource& source) {
    Weight weight;
    weight.dtype = source.dtype;
    weight.rows = source.rows;
    weight.cols = source.cols;
    weight.use = source.use;
    return weight;
  }

 private:
  static void refuse() { CHECK(false, "a backend that only counts was asked to compute"); }

  std::vector<std::pair<void*, std::size_t>> ranges_;
};

class CpuSizing final : public Sizing {
 public:
  CpuSizing(int threads, const CpuForms& forms) : threads_(threads), forms_(forms) {}

  std::string name() const override { return "cpu (only counting)"; }
  std::string device_class() const override { return "counting"; }
  std::int64_t bytes() const override { return bytes_; }
  std::int64_t context_bytes() const override { return 0; }
  std::int64_t host_bytes() const override { return 0; }

  Result<Weight> load_weight(const WeightSource& source) override {
    const Result<CpuPlacement> placement = place_cpu_weight(source, forms_);
    if (!placement.ok()) return placement.error();
    Weight weight = describe(source);
    if (placement->in_place) {
      // A tied output is the embedding's bytes once more.
      if (in_place_.insert(source.bytes.data()).second) count(placement->bytes);
      weight.data = source.bytes.data();
      return weight;
    }
    Result<Buffer> storage = allocate(placement->bytes);
    if (!storage.ok()) return storage.error().in(source.name);
    weight.storage = storage.take();
    weight.data = weight.storage.data();
    return weight;
  }
  InputForm input_form(tensor::DType weight) const override {
    return cpu_input_form(forms_, weight);
  }
  std::int32_t step_rows() const override { return kCpuStepRows; }
  Status reserve(const StepLimits& limits) override {
    const Result<CpuWorkspace> workspace = plan_cpu_workspace(limits, threads_, forms_);
    if (!workspace.ok()) return workspace.error();
    count(workspace->bytes());
    return ok_status();
  }

 private:
  void count(std::int64_t bytes) override { bytes_ += std::max<std::int64_t>(bytes, 0); }

  int threads_;
  CpuForms forms_;
  std::int64_t bytes_ = 0;
  std::unordered_set<const std::byte*> in_place_;
};

class CudaSizing final : public Sizing {
 public:
  explicit CudaSizing(std::string name) : name_(std::move(name)) {}

  std::string name() const override { return name_ + " (only counting)"; }
  std::string device_class() const override { return "counting"; }
  std::int64_t bytes() const override { return large_ + round_up(small_, kCudaPiece); }
  std::int64_t context_bytes() const override { return kCudaContextBytes; }
  std::int64_t host_bytes() const override { return kCudaHostBytes; }

  Result<Weight> load_weight(const WeightSource& source) override {
    const Result<HostPlacement> placement = place_host_weight(source);
    if (!placement.ok()) return placement.error();
    Weight weight = describe(source);
    // As on a device with tensor cores; older ones take a little less.
    Result<Buffer> storage = allocate(
        cuda::place_weight(source.dtype, source.use, source.rows, source.cols, true).bytes());
    if (!storage.ok()) return storage.error().in(source.name);
    weight.storage = storage.take();
    weight.data = weight.storage.data();
    return weight;
  }
  InputForm input_form(tensor::DType weight) const override {
    return cuda::input_form_of(cuda::packed_form(weight));
  }
  std::int32_t step_rows() const override { return cuda::kStepRows; }
  // What these are told lies in buffers of the steps.
  bool can_draw() const override { return true; }
  bool can_choose() const override { return true; }
  bool can_edit() const override { return true; }
  Status reserve(const StepLimits& limits) override {
    const Result<cuda::Workspace> workspace = cuda::plan_workspace(limits);
    if (!workspace.ok()) return workspace.error().in(name_);
    count(workspace->bytes());
    return ok_status();
  }

 private:
  void count(std::int64_t bytes) override {
    if (bytes > kCudaLarge) {
      large_ += round_up(bytes, kCudaPiece);
    } else {
      small_ += round_up(std::max<std::int64_t>(bytes, 1), kCudaUnit);
    }
  }

  std::string name_;
  std::int64_t large_ = 0;
  std::int64_t small_ = 0;
};

}  // namespace

Result<std::unique_ptr<SizingBackend>> make_sizing_backend(std::string_view name,
                                                           const BackendOptions& options) {
  if (name == "cpu") {
    const int threads = options.threads > 0 ? options.threads : base::usable_cores();
    return std::unique_ptr<SizingBackend>(
        std::make_unique<CpuSizing>(threads, cpu_forms(options.isa, options.input)));
  }
  if (name.starts_with("cuda:"))
    return std::unique_ptr<SizingBackend>(std::make_unique<CudaSizing>(std::string(name)));
  return Error{ErrorCode::InvalidArgument,
               fmt::format("cannot plan for '{}'; there are: cpu, cuda:N (as in cuda:0)", name)};
}

}  // namespace llorch::compute
