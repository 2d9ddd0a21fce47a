#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <variant>

#include "base/check.h"
#include "compute/dequantize.h"
#include "tensor/dtype.h"

namespace llorch::model {
namespace {

using compute::Backend;
using compute::TensorView;
using compute::Weight;
using tensor::DType;

constexpr std::int64_t kVectorAlignment =
    16;  // in floats: every vector starts on its own cache line

std::int64_t padded(std::int64_t elems) {
  return (elems + kVectorAlignment - 1) / kVectorAlignment * kVectorAlignment;
}

// What the forward pass does with a matrix (ModelWeights::output_matrix).
compute::WeightUse use_of(Role role, const ModelPlan& plan) {
  if (role == Role::PositionEmbedding) return compute::WeightUse::LookUp;
  if (role != Role::TokenEmbedding) return compute::WeightUse::Multiply;
  if (!plan.config.has_logits) return compute::WeightUse::LookUp;
  const bool has_output =
      std::any_of(plan.tensors.begin(), plan.tensors.end(),
                  [](const MappedTensor& mapped) { return mapped.spec.role == Role::Output; });
  return has_output ? compute::WeightUse::LookUp : compute::WeightUse::Both;
}

bool is_vocabulary(Role role) {
  return role == Role::TokenEmbedding || role == Role::Output;
}

Result<Weight> load_matrix(const formats::WeightFile& file, const MappedTensor& mapped,
                           const ModelPlan& plan, Backend& backend) {
  const formats::WeightTensor& tensor = *mapped.tensor;
  const std::int64_t inner = tensor.shape[1];
  const bool plain = tensor.strides.empty();
  std::int64_t outer = tensor.shape[0];
  std::span<const std::byte> bytes = tensor.bytes;
  if (is_vocabulary(mapped.spec.role) && plan.config.vocab_size < outer) {
    outer = plan.config.vocab_size;  // cut_vocabulary
    const std::optional<std::int64_t> front = tensor::storage_bytes(tensor.dtype, outer * inner);
    CHECK(front && *front <= std::ssize(bytes));
    if (plain) bytes = bytes.first(static_cast<std::size_t>(*front));
  }
  const std::int64_t outer_stride = plain ? inner : tensor.strides[0];
  const std::int64_t inner_stride = plain ? 1 : tensor.strides[1];
  compute::WeightSource source{.name = tensor.name,
                               .dtype = tensor.dtype,
                               .rows = outer,
                               .cols = inner,
                               .row_stride = outer_stride,
                               .col_stride = inner_stride,
                               .use = use_of(mapped.spec.role, plan),
                               .bytes = bytes,
                               .file = file.file_of(bytes)};
  if (mapped.spec.transposed) {
    std::swap(source.rows, source.cols);
    std::swap(source.row_stride, source.col_stride);
  }
  return backend.load_weight(source);
}

// Uploads one norm or bias as F32 and returns its view in the vectors buffer.
Result<TensorView> load_vector(const MappedTensor& mapped, Backend& backend, float* target) {
  const formats::WeightTensor& tensor = *mapped.tensor;
  const std::int64_t elems = tensor.shape.elements();
  std::vector<float> values(static_cast<std::size_t>(elems));
  const Status decoded =
      tensor.strides.empty()
          ? compute::dequantize(tensor.dtype, tensor.bytes, values)
          : compute::dequantize(tensor.dtype, formats::gather_contiguous(tensor), values);
  if (!decoded.ok())
    return Error{decoded.error().code,
                 fmt::format("{} in {}", decoded.error().message, tensor.name)};
  if (mapped.spec.plus_one) {
    for (float& value : values) value += 1.0F;
  }
  backend.upload(std::as_bytes(std::span(values)), target);
  return TensorView(target, DType::F32, {elems});
}

// Where the tensor of a role goes. A bias belongs to the projection placed last where there are
// several: specs list each bias right after its matrix.
struct Place {
  Role role;
  std::variant<Weight ModelWeights::*, std::optional<Weight> ModelWeights::*, Norm ModelWeights::*,
               Norm LayerWeights::*, Linear LayerWeights::*, std::vector<Linear> LayerWeights::*>
      member;
  bool is_bias = false;
};

constexpr std::array kPlaces = {
    Place{Role::TokenEmbedding, &ModelWeights::token_embedding},
    Place{Role::PositionEmbedding, &ModelWeights::position_embedding},
    Place{Role::Output, &ModelWeights::output},
    Place{Role::OutputNormWeight, &ModelWeights::output_norm},
    Place{Role::OutputNormBias, &ModelWeights::output_norm, true},
    Place{Role::AttnNormWeight, &LayerWeights::attn_norm},
    Place{Role::AttnNormBias, &LayerWeights::attn_norm, true},
    Place{Role::Qkv, &LayerWeights::qkv},
    Place{Role::QkvBias, &LayerWeights::qkv, true},
    Place{Role::QNormWeight, &LayerWeights::q_norm},
    Place{Role::KNormWeight, &LayerWeights::k_norm},
    Place{Role::AttnOut, &LayerWeights::attn_out},
    Place{Role::AttnOutBias, &LayerWeights::attn_out, true},
    Place{Role::PostAttnNormWeight, &LayerWeights::post_attn_norm},
    Place{Role::FfnNormWeight, &LayerWeights::ffn_norm},
    Place{Role::FfnNormBias, &LayerWeights::ffn_norm, true},
    Place{Role::FfnIn, &LayerWeights::ffn_in},
    Place{Role::FfnInBias, &LayerWeights::ffn_in, true},
    Place{Role::FfnOut, &LayerWeights::ffn_out},
    Place{Role::FfnOutBias, &LayerWeights::ffn_out, true},
    Place{Role::PostFfnNormWeight, &LayerWeights::post_ffn_norm},
};
static_assert(std::ranges::is_sorted(kPlaces, {}, &Place::role));

// The table's row and the layer of a tensor, to be asked for the member it goes to.
class Target {
 public:
  Target(ModelWeights& model, const TensorSpec& spec)
      : model_(model),
        layer_(spec.layer < 0 ? nullptr : &model.layers[static_cast<std::size_t>(spec.layer)]),
        place_(kPlaces[static_cast<std::size_t>(spec.role)]) {}

  void put(Weight weight) const {
    if (auto* one = of_model<Weight>()) {
      *one = std::move(weight);
    } else if (auto* maybe = of_model<std::optional<Weight>>()) {
      *maybe = std::move(weight);
    } else if (auto* list = of_layer<std::vector<Linear>>()) {
      list->push_back({std::move(weight), {}});
    } else {
      of_layer<Linear>()->weight = std::move(weight);
    }
  }

  void put(TensorView vector) const {
    Norm* norm = of_model<Norm>();
    if (norm == nullptr) norm = of_layer<Norm>();
    if (norm != nullptr) {
      (place_.is_bias ? norm->bias : norm->weight) = vector;
    } else if (auto* list = of_layer<std::vector<Linear>>()) {
      list->back().bias = vector;
    } else {
      of_layer<Linear>()->bias = vector;
    }
  }

 private:
  template <class T>
  T* of_model() const {
    const auto* member = std::get_if<T ModelWeights::*>(&place_.member);
    return member == nullptr ? nullptr : &(model_.**member);
  }
  template <class T>
  T* of_layer() const {
    const auto* member = std::get_if<T LayerWeights::*>(&place_.member);
    return member == nullptr ? nullptr : &(layer_->**member);
  }

  ModelWeights& model_;
  LayerWeights* layer_;
  const Place& place_;
};

// The largest matrices first: while one is packed, its pages of the file and its tiles are both
// there, which costs nothing as long as the rest is still to come.
std::vector<const MappedTensor*> in_load_order(const ModelPlan& plan) {
  std::vector<const MappedTensor*> order;
  for (const MappedTensor& mapped : plan.tensors) order.push_back(&mapped);
  // clang 14 does not take std::ranges' with this library.
  std::stable_partition(order.begin(), order.end(), [](const MappedTensor* mapped) {
    return is_vocabulary(mapped->spec.role);
  });
  return order;
}

}  // namespace

std::vector<const compute::Buffer*> ModelWeights::buffers() const {
  std::vector<const compute::Buffer*> all;
  const auto add = [&all](const compute::Buffer& buffer) {
    if (buffer.data() != nullptr) all.push_back(&buffer);
  };
  const auto add_all = [&add](const std::vector<Linear>& parts) {
    for (const Linear& part : parts) add(part.weight.storage);
  };
  add(vectors);
  add(token_embedding.storage);
  if (position_embedding) add(position_embedding->storage);
  if (output) add(output->storage);
  for (const LayerWeights& layer : layers) {
    add_all(layer.qkv);
    add(layer.attn_out.weight.storage);
    add_all(layer.ffn_in);
    add(layer.ffn_out.weight.storage);
  }
  return all;
}

std::int64_t weight_bytes(const ModelPlan& plan) {
  std::int64_t bytes = 0;
  for (const MappedTensor& mapped : plan.tensors)
    bytes += static_cast<std::int64_t>(mapped.tensor->bytes.size());
  return bytes;
}

Result<ModelWeights> load_weights(const formats::WeightFile& file, const ModelPlan& plan,
                                  Backend& backend, const LoadProgress& progress) {
  ModelWeights weights;
  weights.layers.resize(static_cast<std::size_t>(plan.config.num_layers));
  weights.bytes = weight_bytes(plan);
  std::int64_t vector_elems = 0;
  for (const MappedTensor& mapped : plan.tensors) {
    if (!mapped.spec.is_matrix()) vector_elems += padded(mapped.tensor->shape.elements());
  }
  for (const RopeConfig& rope : plan.config.ropes)
    vector_elems += padded(static_cast<std::int64_t>(rope.frequencies.size()));
  Result<compute::Buffer> vectors =
      backend.allocate(vector_elems * static_cast<std::int64_t>(sizeof(float)));
  if (!vectors.ok()) return vectors.error();
  weights.vectors = vectors.take();

  auto* next_vector = static_cast<float*>(weights.vectors.data());
  std::int64_t done = 0;
  for (const MappedTensor* next : in_load_order(plan)) {
    const MappedTensor& mapped = *next;
    if (progress && !progress(done, weights.bytes))
      return Error{ErrorCode::Cancelled, "loading was given up"};
    done += static_cast<std::int64_t>(mapped.tensor->bytes.size());
    if (mapped.spec.is_matrix()) {
      Result<Weight> weight = load_matrix(file, mapped, plan, backend);
      if (!weight.ok()) return weight.error();
      if (weight->data != mapped.tensor->bytes.data()) file.forget(mapped.tensor->bytes);
      Target(weights, mapped.spec).put(weight.take());
    } else {
      Result<TensorView> vector = load_vector(mapped, backend, next_vector);
      if (!vector.ok()) return vector.error();
      Target(weights, mapped.spec).put(vector.value());
      next_vector += padded(mapped.tensor->shape.elements());
    }
  }
  for (const RopeConfig& rope : plan.config.ropes) {
    const auto elems = static_cast<std::int64_t>(rope.frequencies.size());
    backend.upload(std::as_bytes(std::span(rope.frequencies)), next_vector);
    weights.ropes.push_back(
        {TensorView(next_vector, DType::F32, {elems}), rope.style, rope.magnitude});
    next_vector += padded(elems);
  }
  return weights;
}

}  // namespace llorch::model
