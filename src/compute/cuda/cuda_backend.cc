// Backend on one CUDA device and one stream. Nothing but download() and synchronize() waits for it.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compute/check_args.h"
#include "compute/cuda/check.h"
#include "compute/cuda/create_cuda.h"
#include "compute/cuda/device_info.h"
#include "compute/cuda/device_memory.h"
#include "compute/cuda/draw_layout.h"
#include "compute/cuda/found_ids.h"
#include "compute/cuda/kernels.h"
#include "compute/cuda/outbox.h"
#include "compute/cuda/packed_layout.h"
#include "compute/cuda/packing.h"
#include "compute/cuda/product_plan.h"
#include "compute/cuda/products.h"
#include "compute/cuda/rounded_places.h"
#include "compute/cuda/step_graphs.h"
#include "compute/cuda/tiled_attention.h"
#include "compute/cuda/weights_ahead.h"
#include "compute/cuda/workspace.h"
#include "compute/host_memory.h"

namespace llorch::compute {
namespace {

using cuda::check_cuda;

class CudaBackend final : public Backend {
 public:
  struct Events {
    std::array<cudaEvent_t, 2> layers = {};  // recorded before each layer in turn
    std::array<cudaEvent_t, kMarks> marks = {};
  };

  // Takes stream and events over.
  CudaBackend(int device, std::string name, cudaStream_t stream, const Events& events,
              std::unique_ptr<cuda::Staging> staging, std::unique_ptr<cuda::Outbox> outbox)
      : device_(device),
        name_(std::move(name)),
        stream_(stream),
        cores_(cuda::find_tensor_cores()),
        queue_{.stream = stream, .has_edges = cores_.wgmma},
        graphs_(stream),
        events_(events),
        staging_(std::move(staging)),
        outbox_(std::move(outbox)),
        rounded_(cores_) {}
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;
  ~CudaBackend() override {
    cudaSetDevice(device_);
    cudaStreamSynchronize(stream_);
    graphs_.clear();
    outbox_.reset();
    for (const cudaEvent_t event : events_.layers) cudaEventDestroy(event);
    for (const cudaEvent_t event : events_.marks) cudaEventDestroy(event);
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

  std::optional<DeviceFacts> facts() const override { return cuda::read_facts(device_); }
  bool is_resident(const Buffer& buffer) const override {
    cudaPointerAttributes attributes{};
    const cudaError_t status = cudaPointerGetAttributes(&attributes, buffer.data());
    return status == cudaSuccess && attributes.type == cudaMemoryTypeDevice &&
           attributes.device == device_;
  }
  std::int64_t workspace_bytes() const override { return workspace_.bytes(); }

  std::int64_t free_bytes() const override {
    std::size_t free = 0;
    std::size_t total = 0;
    check_cuda(cudaSetDevice(device_), "cudaSetDevice");
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(free);
  }

  Result<Buffer> allocate(std::int64_t bytes) override {
    use_device();
    rounded_.forget();
    Result<Buffer> buffer = cuda::allocate_device(bytes, stream_);
    if (!buffer.ok()) return buffer.error().in(name_);
    return buffer;
  }

  void upload(std::span<const std::byte> host, void* device) override {
    use_device();
    rounded_.forget();  // it may be of what is overwritten
    staging_->copy(host, device, stream_);
  }

  void download(const void* device, std::span<std::byte> host) override {
    use_device();
    staging_->fetch(device, host, stream_);
  }

  bool runs_behind() const override { return true; }
  void download_later(const void* device, std::span<std::byte> host) override {
    use_device();
    if (outbox_->take(device, host, queue_)) return;
    check_cuda(cudaMemcpyAsync(host.data(), device, host.size(), cudaMemcpyDeviceToHost, stream_),
               "download");
  }
  void mark(int place) override {
    use_device();
    outbox_->send(events_.marks.at(static_cast<std::size_t>(place)), queue_);
  }
  void wait(int place) override {
    use_device();
    check_cuda(cudaEventSynchronize(events_.marks.at(static_cast<std::size_t>(place))),
               "waiting for a step, or an op in it");
  }

  void fill_in_ids(const TensorView& ids, const TensorView& found) override {
    use_device();
    cuda::launch_fill_in_ids(static_cast<std::int32_t*>(ids.data), ids.dims[0],
                             static_cast<const std::int32_t*>(found.data), found.dims[0], queue_);
  }

  Buffer pin_host(std::span<std::byte> memory) override {
    use_device();
    return cuda::pin_host(memory);
  }

  void synchronize() override {
    use_device();
    check_cuda(cudaStreamSynchronize(stream_), "synchronize, or an op before it");
  }

  // Rows are made contiguous on the host and copied; what is multiplied is then packed on the
  // device, piece by piece.
  Result<Weight> load_weight(const WeightSource& source) override {
    const Result<Weight> host = load_host_weight(source);
    if (!host.ok()) return host.error();
    Weight weight;
    weight.dtype = host->dtype;
    weight.rows = host->rows;
    weight.cols = host->cols;
    weight.use = host->use;
    weights_ahead_.forget();
    const cuda::WeightPlace place = place_of(weight);
    Result<Buffer> storage = allocate(place.bytes());
    if (!storage.ok()) return storage.error().in(source.name);
    weight.storage = storage.take();
    weight.data = weight.storage.data();
    const std::span<const std::byte> bytes(
        static_cast<const std::byte*>(host->data),
        static_cast<std::size_t>(weight.rows * row_bytes(*host)));
    if (place.form != cuda::PackedForm::None) {
      const Status packed = packing_.pack(weight, bytes, row_bytes(*host), *staging_, queue_);
      if (!packed.ok()) return packed.error().in(name_).in(source.name);
    }
    if (place.plain > 0)
      upload(bytes, static_cast<std::byte*>(weight.storage.data()) + place.packed);
    return weight;
  }

  InputForm input_form(tensor::DType weight) const override {
    return cores_.mma ? cuda::input_form_of(cuda::packed_form(weight)) : InputForm::F32;
  }
  WeightForm weight_form(tensor::DType weight) const override {
    const bool rounds = cores_.mma && cuda::packed_form(weight) != cuda::PackedForm::None;
    return rounds ? WeightForm::Half : WeightForm::Exact;
  }
  AttentionForm attention_form(tensor::DType cache) const override {
    if (!cores_.mma || cache == tensor::DType::F32) return {};
    return {.query = InputForm::F16,
            .cache = cache == tensor::DType::Q8_0 ? InputForm::F16 : InputForm::F32};
  }
  std::int32_t step_rows() const override { return cuda::kStepRows; }

  Status reserve(const StepLimits& limits) override {
    const Result<cuda::Workspace> plan = cuda::plan_workspace(limits);
    if (!plan.ok()) return plan.error().in(name_);
    use_device();
    graphs_.clear();
    packing_.end();
    Result<Buffer> room = allocate(plan->bytes());
    if (!room.ok()) return room.error().in("workspace");
    workspace_ = room.take();
    plan_ = *plan;
    rounded_.take_room(workspace(0), plan_.rounded);
    return ok_status();
  }

  bool begin_step(const StepShape& shape) override {
    use_device();
    rounded_.forget();
    weights_ahead_.begin_step(cuda::find_graph_key(shape).has_value());
    return graphs_.begin(shape);
  }
  bool end_step() override {
    use_device();
    weights_ahead_.end_step();
    return graphs_.end();
  }

  // The host can be a whole step ahead of the device. Here it waits until the device is no more
  // than two layers behind, so that a step which is given up ends within two layers. Not for steps
  // of one row for each sequence: they are over soon, and the host has other things to do.
  bool aborted(const StepShape& shape) override {
    if (shape.abort == nullptr || graphs_.is_capturing()) return false;
    if (shape.rows == shape.sequences) return Backend::aborted(shape);
    use_device();
    cudaEvent_t layer = events_.layers[next_event_];
    next_event_ = (next_event_ + 1) % events_.layers.size();
    check_cuda(cudaEventSynchronize(layer), "waiting for a layer, or an op in it");
    if (Backend::aborted(shape)) return true;
    check_cuda(cudaEventRecord(layer, stream_), "cudaEventRecord");
    return false;
  }

  void embed(const EmbedArgs& args) override {
    begin_op(args);
    const auto [form, plain] = table_of(*args.table);
    cuda::launch_embed(args, form, plain, queue_);
  }
  void begin_rows(const BeginRowsArgs& args) override {
    begin_op(args);
    const auto [form, plain] = table_of(*args.embed.table);
    if (!cuda::launch_begin_rows(args, form, plain, queue_)) Backend::begin_rows(args);
  }
  void layer_norm(const LayerNormArgs& args) override {
    begin_op(args);
    cuda::launch_layer_norm(args, rounded_.beside(args.out), queue_);
  }
  void rms_norm(const RmsNormArgs& args) override {
    begin_op(args);
    const bool is_input = args.x.rank == 2 && !args.accumulate;
    cuda::launch_rms_norm(args, is_input ? rounded_.beside(args.out) : cuda::RoundedTarget(),
                          queue_);
  }
  void linear(const LinearArgs& args) override {
    check_args(args);
    use_device();
    multiply(args.targets, args.x, nullptr);
  }
  void norm_linear(const NormLinearArgs& args) override {
    check_args(args);
    use_device();
    if (cuda::norms_inside(args, cores_)) {
      rounded_.forget();
      return multiply(args.targets, args.x, &args.norm);
    }
    Backend::norm_linear(args);
  }
  void mlp_in(const MlpInArgs& args) override {
    check_args(args);
    if (!cuda::gates_inside(args, cores_)) return Backend::mlp_in(args);
    use_device();
    const NormLinearArgs& product = args.product;
    const bool inside = cuda::norms_inside(product, cores_);
    if (!inside) norm(product.x, product.norm, product.normed);
    cuda::ProductArgs both = product_of(product.targets, inside ? product.x : product.normed,
                                        inside ? &product.norm : nullptr);
    both.is_gated = true;
    both.activation = args.kind;
    both.rounded = rounded_.beside(args.out.columns(0, args.out.dims[1] / 2));
    weights_ahead_.follow(both, cuda::AheadOf::Others);
    cuda::launch_product(both, queue_);
  }
  void project_heads(const ProjectHeadsArgs& args) override {
    check_args(args);
    const std::optional<cuda::HeadPlaces> places = cuda::find_places(args, cores_);
    if (!places) return Backend::project_heads(args);
    use_device();
    const NormLinearArgs& product = args.product;
    if (cuda::norms_inside(product, cores_)) {
      rounded_.forget();
      return multiply(product.targets, product.x, &product.norm, *places);
    }
    norm(product.x, product.norm, product.normed);
    multiply(product.targets, product.normed, nullptr, *places);
  }
  void logits(const LogitsArgs& args) override {
    begin_op(args);
    cuda::launch_norm_of_picked(args, rounded_.beside(args.picked), queue_);
    const LinearTarget target{.weight = args.weight, .bias = {}, .out = args.out};
    linear({.x = args.picked, .targets = {&target, 1}});
    if (args.softcap > 0) softcap({.x = args.out, .cap = args.softcap, .out = args.out});
  }
  void activation(const ActivationArgs& args) override {
    begin_op(args);
    cuda::launch_activation(args, rounded_.beside(args.out), queue_);
  }
  void rope_angles(const RopeAnglesArgs& args) override { run(args, cuda::launch_rope_angles); }
  void rope(const RopeArgs& args) override { run(args, cuda::launch_rope); }
  void write_kv(const WriteKvArgs& args) override { run(args, cuda::launch_write_kv); }
  void place_heads(const PlaceHeadsArgs& args) override { run(args, cuda::launch_place_heads); }
  void attention(const AttentionArgs& args) override {
    begin_op(args);
    is_behind_attention_ = true;
    const bool is_tiled = cores_.mma && cuda::is_tiled(args, cores_.shared_bytes);
    // The plain kernel also has the scores that observers ask for.
    if (!is_tiled || args.scores) {
      cuda::launch_attention(args, attention_form(args.cache.keys.dtype), queue_);
    }
    if (!is_tiled) return;
    const TensorView merged(args.out.data, args.out.dtype,
                            {args.out.rows(), args.out.row_elements()});
    cuda::launch_tiled_attention(args, rounded_.beside(merged), split_workspace(), queue_);
  }
  void gather_rows(const GatherRowsArgs& args) override { run(args, cuda::launch_gather_rows); }
  void softcap(const SoftcapArgs& args) override { run(args, cuda::launch_softcap); }
  void softmax(const SoftmaxArgs& args) override { run(args, cuda::launch_softmax); }
  void argmax(const ArgmaxArgs& args) override {
    begin_op(args);
    CHECK(args.x.rows() * 12 <= plan_.argmax, "larger than the limits given to reserve");
    auto* best = reinterpret_cast<unsigned long long*>(
        workspace(2 * plan_.rounded + plan_.splits + plan_.tickets));
    cuda::launch_argmax(args, best, reinterpret_cast<int*>(best + args.x.rows()), queue_);
  }

  bool can_draw() const override { return true; }
  void draw(const DrawArgs& args) override {
    begin_op(args);
    cuda::launch_draw(args, draw_workspace(args.x.rows()), queue_);
  }
  bool can_choose() const override { return true; }
  void choose(const ChooseArgs& args) override {
    begin_op(args);
    cuda::launch_choose(args, draw_workspace(args.x.rows()), queue_);
  }
  bool can_edit() const override { return true; }
  void edit_logits(const EditLogitsArgs& args) override { run(args, cuda::launch_edit_logits); }

 private:
  // The current device belongs to the calling thread, which may serve several backends.
  void use_device() { check_cuda(cudaSetDevice(device_), "cudaSetDevice"); }

  // Every op but products may change what was rounded.
  template <class Args>
  void begin_op(const Args& args) {
    check_args(args);
    use_device();
    rounded_.forget();
  }
  template <class Args>
  void run(const Args& args, void (*launch)(const Args&, const cuda::Queue&)) {
    begin_op(args);
    launch(args, queue_);
  }

  cuda::WeightPlace place_of(const Weight& weight) const {
    return cuda::place_weight(weight.dtype, weight.use, weight.rows, weight.cols, cores_.mma);
  }

  // A table as rows are looked up in it: in its tiles, or as it was.
  std::pair<cuda::PackedForm, const std::byte*> table_of(const Weight& table) const {
    const cuda::WeightPlace place = place_of(table);
    const auto* data = static_cast<const std::byte*>(table.data);
    if (place.plain > 0) return {cuda::PackedForm::None, data + place.packed};
    return {place.form, data};
  }

  std::byte* workspace(std::int64_t offset) const {
    return static_cast<std::byte*>(workspace_.data()) + offset;
  }
  void* draw_workspace(std::int64_t rows) const {
    CHECK(cuda::draw_bytes(rows) <= plan_.draws, "larger than the limits given to reserve");
    return workspace(2 * plan_.rounded + plan_.splits + plan_.tickets + plan_.argmax);
  }
  cuda::SplitWorkspace split_workspace() const {
    return {.parts = reinterpret_cast<float*>(workspace(2 * plan_.rounded)),
            .floats = plan_.splits / 4,
            .tickets = reinterpret_cast<int*>(workspace(2 * plan_.rounded + plan_.splits)),
            .num_tickets = plan_.tickets / 4,
            .has_clusters = cores_.wgmma};
  }

  // The rows of a product in 16 bits: as the op before left them, or rounded now.
  cuda::RoundedTarget rounded_input(const TensorView& x) {
    if (const auto found = rounded_.find(x)) return *found;
    const cuda::RoundedTarget target = rounded_.next(x);
    cuda::launch_round_rows(x, target, queue_);
    return target;
  }

  // Neighbouring targets of one form, or of two that mix, are one launch. With `norm`, each
  // computes norm(x) by itself; `places`: what becomes of the outputs, all of packed forms.
  void multiply(std::span<const LinearTarget> targets, const TensorView& x, const RowNorm* norm,
                cuda::HeadPlaces places = {}) {
    while (!targets.empty()) {
      if (cuda::form_of(targets.front(), cores_) == cuda::PackedForm::None) {
        cuda::launch_linear(targets.front(), x, queue_);
        targets = targets.subspan(1);
        continue;
      }
      const std::size_t count = cuda::count_together(targets, x.rows(), cores_);
      if (x.rows() > 0) {
        cuda::ProductArgs product = product_of(targets.first(count), x, norm);
        product.heads = places;
        places.first_output += product.output_tiles * cuda::kTileOutputs;
        weights_ahead_.follow(product, product.heads.slots != nullptr ? cuda::AheadOf::Heads
                                       : std::exchange(is_behind_attention_, false)
                                           ? cuda::AheadOf::BehindAttention
                                           : cuda::AheadOf::Others);
        cuda::launch_product(product, queue_);
      }
      targets = targets.subspan(count);
    }
  }
  cuda::ProductArgs product_of(std::span<const LinearTarget> targets, const TensorView& x,
                               const RowNorm* norm) {
    cuda::ProductArgs args = cuda::plan_outputs(targets, cores_);
    args.tiles = static_cast<int>(cuda::padded_inputs(x.dims[1]) / cuda::kTileInputs);
    args.rows = static_cast<int>(x.rows());
    if (norm != nullptr) {
      args.norm_x = static_cast<const float*>(x.data);
      args.norm_stride = x.row_stride;
      args.gain = static_cast<const float*>(norm->weight.data);
      args.dim = static_cast<int>(x.dims[1]);
      args.epsilon = norm->epsilon;
    } else {
      const cuda::RoundedTarget rounded = rounded_input(x);
      args.x = rounded.data;
      args.x_stride = rounded.stride;
      args.block_bits = rounded.block_bits;
    }
    return args;
  }

  int device_;
  std::string name_;
  cudaStream_t stream_;
  cuda::TensorCores cores_;
  cuda::Queue queue_;
  cuda::StepGraphs graphs_;
  Events events_;
  std::size_t next_event_ = 0;
  std::unique_ptr<cuda::Staging> staging_;
  std::unique_ptr<cuda::Outbox> outbox_;
  cuda::Workspace plan_;
  Buffer workspace_;       // as plan_ says, its parts one after the other
  cuda::Packing packing_;  // while weights are loaded
  cuda::RoundedPlaces rounded_;
  cuda::WeightsAhead weights_ahead_;
  bool is_behind_attention_ = false;  // the next product is
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(int device) {
  int num_devices = 0;
  const cudaError_t counted = cudaGetDeviceCount(&num_devices);
  if (counted != cudaSuccess) num_devices = 0;
  if (device < 0 || device >= num_devices)
    return cuda::no_such_device(device, num_devices, counted);
  const std::string name = cuda::describe_device(device);
  if (const cudaError_t status = cudaSetDevice(device); status != cudaSuccess) {
    return cuda::device_failed(name, "cannot be used", status);
  }
  if (const cudaError_t status = cuda::probe_kernels(); status != cudaSuccess) {
    return cuda::device_failed(name, "cannot run the compiled kernels", status);
  }
  Result<std::unique_ptr<cuda::Staging>> staging = cuda::Staging::make();
  if (!staging.ok()) return staging.error().in(name);
  Result<std::unique_ptr<cuda::Outbox>> outbox = cuda::Outbox::make();
  if (!outbox.ok()) return outbox.error().in(name);
  cudaStream_t stream = nullptr;
  if (const cudaError_t status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      status != cudaSuccess) {
    return cuda::device_failed(name, "cannot make a stream", status);
  }
  CudaBackend::Events events;
  for (const std::span<cudaEvent_t> some : {std::span(events.layers), std::span(events.marks)}) {
    for (cudaEvent_t& event : some) {
      if (const cudaError_t status = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
          status != cudaSuccess) {
        return cuda::device_failed(name, "cannot make an event", status);
      }
    }
  }
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(device, name, stream, events, staging.take(), outbox.take()));
}

}  // namespace llorch::compute
