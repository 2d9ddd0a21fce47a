// The class behind cpu_backend.h: how each op is shared out to threads and handed to the kernels.
// Its ops are in three files: rows and memory in cpu_backend.cc, products in products.cc, heads and
// cache in heads.cc.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>

#include "compute/cpu/attention_tasks.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/packed.h"
#include "compute/cpu/thread_pool.h"
#include "compute/cpu/weight_arena.h"
#include "compute/host_backend.h"

namespace llorch::compute {

// Up to so many values are normed and prepared by every thread for itself: a microsecond or two,
// where meeting takes up to half of one on an idle machine and many on a busy one.
inline constexpr std::int64_t kEachFloats = 8192;

inline constexpr const char* kTooLarge = "a step larger than the limits given to reserve()";

inline std::int64_t index_at(const TensorView& view, std::int64_t i) {
  return *view.row<std::int32_t>(i);
}

// Whole cache lines.
inline std::int64_t padded_floats(std::int64_t floats) {
  constexpr std::int64_t kLineFloats = 16;
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

inline const std::uint8_t* weight_row(const Weight& weight, std::int64_t row) {
  return static_cast<const std::uint8_t*>(weight.data) + row * row_bytes(weight);
}

// The rows of a product: as they are; in the form that was wished for; as blocks of whole numbers;
// as bfloat16 numbers. What nobody wants is null.
struct ProductInput {
  TensorView plain;
  TensorView rounded;
  InputBlock* blocks = nullptr;
  RoundedBlock* bf16 = nullptr;
};

inline const std::uint8_t* tile_of(const Weight& weight, std::int64_t row) {
  return static_cast<const std::uint8_t*>(weight.data) +
         row / kTileRows * tile_bytes(weight.dtype, weight.cols);
}

class CpuBackend final : public HostBackend {
 public:
  CpuBackend(const Isa& isa, int num_threads, std::optional<InputForm> input)
      : isa_(isa),
        kernels_(*isa.kernels),
        pool_(num_threads),
        forms_{input, isa.packed->round != nullptr} {}

  std::string name() const override {
    return fmt::format("cpu ({}, {} thread{}{}{})", isa_.label, pool_.num_threads(),
                       pool_.num_threads() == 1 ? "" : "s", forms_.wish ? ", input " : "",
                       forms_.wish ? compute::name(*forms_.wish) : "");
  }

  // How many threads there are changes no bit. Other models than those with BF16 weights get the
  // same bits with and without products for those.
  std::string device_class() const override {
    return fmt::format("cpu-{}{}{}{}", isa_.bits_of, has_bf16_products_ ? "bf16" : "",
                       forms_.wish ? "-" : "", forms_.wish ? compute::name(*forms_.wish) : "");
  }

  Result<Weight> load_weight(const WeightSource& source) override;
  InputForm input_form(tensor::DType weight) const override {
    return cpu_input_form(forms_, weight);
  }
  // Floats with what the cache decodes to, whatever its type.
  AttentionForm attention_form(tensor::DType) const override { return {}; }
  std::int32_t step_rows() const override { return kCpuStepRows; }
  Status reserve(const StepLimits& limits) override;

  void embed(const EmbedArgs& args) override;
  void layer_norm(const LayerNormArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void linear(const LinearArgs& args) override;
  void activation(const ActivationArgs& args) override;
  void rope_angles(const RopeAnglesArgs& args) override;
  void rope(const RopeArgs& args) override;
  void write_kv(const WriteKvArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void gather_rows(const GatherRowsArgs& args) override;
  void softcap(const SoftcapArgs& args) override;
  void softmax(const SoftmaxArgs& args) override;
  void argmax(const ArgmaxArgs& args) override;

  // With fewer meetings than their parts.
  void norm_linear(const NormLinearArgs& args) override;
  void mlp_in(const MlpInArgs& args) override;
  void place_heads(const PlaceHeadsArgs& args) override;
  void logits(const LogitsArgs& args) override;

  // Of ops: taking weights in is none.
  std::int64_t thread_meetings() const override { return pool_.num_meetings() - load_meetings_; }

 private:
  template <class Body>
  void for_each_row(std::int64_t rows, const Body& body) {
    pool_.parallel_for(rows, [&body](int thread, std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) body(thread, row);
    });
  }
  float* thread_memory(int thread) const {
    return static_cast<float*>(memory_.data()) + thread * workspace_.thread_floats();
  }
  float* scratch(int thread, std::int64_t floats) const {
    CHECK(floats <= workspace_.decoded, kTooLarge);
    return thread_memory(thread);
  }
  std::uint8_t* room_to_open(int thread) const {
    float* place = thread_memory(thread) + workspace_.thread_floats() - workspace_.opened;
    return reinterpret_cast<std::uint8_t*>(place);
  }
  bool is_tiled(const Weight& weight) const {
    return cpu_has_tiles(forms_, weight.dtype, weight.use);
  }
  struct Wanted {
    bool rounded = false;
    bool blocks = false;
    bool bf16 = false;
  };
  Wanted wanted_by(std::span<const LinearTarget> targets) const;
  void prepare_row(const ProductInput& input, std::int64_t row) const;
  template <class Fill, class Work>
  void with_input(const TensorView& plain, std::span<const LinearTarget> targets, const Fill* fill,
                  std::int64_t count, const Work& work);
  template <class Work>
  void with_normed(const NormLinearArgs& args, const TensorView& indices, std::int64_t count,
                   const Work& work);
  void norm_row(const RowNorm& norm, const float* x, std::int64_t dim, float* out) const;
  void rms_norm_row(const RmsNormArgs& args, std::int64_t row, int thread) const;
  struct Chunks;
  struct Part {
    std::int64_t begin, end;
  };
  void multiply_chunks(const ProductInput& input, std::span<const LinearTarget> targets,
                       const Chunks& chunks, Part part, int thread) const;
  void multiply(const ProductInput& input, const LinearTarget& target, std::int64_t begin,
                std::int64_t end, int thread) const;
  void multiply_across(const ProductInput& input, std::span<const LinearTarget> targets,
                       std::int64_t begin, std::int64_t end, int thread) const;
  std::span<float> attention_parts() const {
    return {thread_memory(pool_.num_threads()) + workspace_.shared.floats(),
            static_cast<std::size_t>(workspace_.parts)};
  }
  void attend(const AttentionArgs& args, const AttentionTask& tile, int thread) const;
  void rotate_row(const RopeArgs& args, std::int64_t row) const;
  void write_row(const WriteKvArgs& args, std::int64_t row) const;

  const Isa isa_;
  const Kernels& kernels_;
  ThreadPool pool_;
  const CpuForms forms_;
  bool has_bf16_products_ = false;  // since a weight for them was loaded
  CpuWorkspace workspace_;
  std::int64_t load_meetings_ = 0;
  WeightArena arena_;
  Buffer memory_;  // each thread's part, then the prepared input, then parts of attention
  AttentionPlan attention_plan_;
};

}  // namespace llorch::compute
