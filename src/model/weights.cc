#include "model/weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "compute/dequantize.h"

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
  const bool has_output =
      std::any_of(plan.tensors.begin(), plan.tensors.end(),
                  [](const MappedTensor& mapped) { return mapped.spec.role == Role::Output; });
  return has_output ? compute::WeightUse::LookUp : compute::WeightUse::Both;
}

Result<Weight> load_matrix(const MappedTensor& mapped, const ModelPlan& plan, Backend& backend) {
  const formats::WeightTensor& tensor = *mapped.tensor;
  const std::int64_t outer = tensor.shape[0];
  const std::int64_t inner = tensor.shape[1];
  const bool plain = tensor.strides.empty();
  const std::int64_t outer_stride = plain ? inner : tensor.strides[0];
  const std::int64_t inner_stride = plain ? 1 : tensor.strides[1];
  compute::WeightSource source{.name = tensor.name,
                               .dtype = tensor.dtype,
                               .rows = outer,
                               .cols = inner,
                               .row_stride = outer_stride,
                               .col_stride = inner_stride,
                               .use = use_of(mapped.spec.role, plan),
                               .bytes = tensor.bytes};
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

void place_matrix(ModelWeights& weights, const TensorSpec& spec, Weight weight) {
  LayerWeights* layer =
      spec.layer < 0 ? nullptr : &weights.layers[static_cast<std::size_t>(spec.layer)];
  switch (spec.role) {
    case Role::TokenEmbedding:
      weights.token_embedding = std::move(weight);
      return;
    case Role::PositionEmbedding:
      weights.position_embedding = std::move(weight);
      return;
    case Role::Output:
      weights.output = std::move(weight);
      return;
    case Role::Qkv:
      layer->qkv.push_back({std::move(weight), {}});
      return;
    case Role::AttnOut:
      layer->attn_out.weight = std::move(weight);
      return;
    case Role::FfnIn:
      layer->ffn_in.push_back({std::move(weight), {}});
      return;
    case Role::FfnOut:
      layer->ffn_out.weight = std::move(weight);
      return;
    default:
      CHECK(false, "a vector role among the matrices");
  }
}

// The bias belongs to the projection placed last: specs list each bias right after its matrix.
void place_vector(ModelWeights& weights, const TensorSpec& spec, TensorView vector) {
  LayerWeights* layer =
      spec.layer < 0 ? nullptr : &weights.layers[static_cast<std::size_t>(spec.layer)];
  switch (spec.role) {
    case Role::OutputNormWeight:
      weights.output_norm.weight = vector;
      return;
    case Role::OutputNormBias:
      weights.output_norm.bias = vector;
      return;
    case Role::AttnNormWeight:
      layer->attn_norm.weight = vector;
      return;
    case Role::AttnNormBias:
      layer->attn_norm.bias = vector;
      return;
    case Role::QkvBias:
      layer->qkv.back().bias = vector;
      return;
    case Role::QNormWeight:
      layer->q_norm.weight = vector;
      return;
    case Role::KNormWeight:
      layer->k_norm.weight = vector;
      return;
    case Role::AttnOutBias:
      layer->attn_out.bias = vector;
      return;
    case Role::PostAttnNormWeight:
      layer->post_attn_norm.weight = vector;
      return;
    case Role::FfnNormWeight:
      layer->ffn_norm.weight = vector;
      return;
    case Role::FfnNormBias:
      layer->ffn_norm.bias = vector;
      return;
    case Role::FfnInBias:
      layer->ffn_in.back().bias = vector;
      return;
    case Role::FfnOutBias:
      layer->ffn_out.bias = vector;
      return;
    case Role::PostFfnNormWeight:
      layer->post_ffn_norm.weight = vector;
      return;
    default:
      CHECK(false, "a matrix role among the vectors");
  }
}

}  // namespace

Result<ModelWeights> load_weights(const formats::WeightFile& file, const ModelPlan& plan,
                                  Backend& backend, const LoadProgress& progress) {
  ModelWeights weights;
  weights.layers.resize(static_cast<std::size_t>(plan.config.num_layers));
  std::int64_t vector_elems = 0;
  for (const MappedTensor& mapped : plan.tensors) {
    weights.bytes += static_cast<std::int64_t>(mapped.tensor->bytes.size());
    if (!is_matrix(mapped.spec.role)) vector_elems += padded(mapped.tensor->shape.elements());
  }
  for (const RopeConfig& rope : plan.config.ropes)
    vector_elems += padded(static_cast<std::int64_t>(rope.frequencies.size()));
  Result<compute::Buffer> vectors =
      backend.allocate(vector_elems * static_cast<std::int64_t>(sizeof(float)));
  if (!vectors.ok()) return vectors.error();
  weights.vectors = vectors.take();

  auto* next_vector = static_cast<float*>(weights.vectors.data());
  std::int64_t done = 0;
  for (const MappedTensor& mapped : plan.tensors) {
    if (progress && !progress(done, weights.bytes))
      return Error{ErrorCode::Cancelled, "loading was given up"};
    done += static_cast<std::int64_t>(mapped.tensor->bytes.size());
    if (is_matrix(mapped.spec.role)) {
      Result<Weight> weight = load_matrix(mapped, plan, backend);
      if (!weight.ok()) return weight.error();
      if (weight->data != mapped.tensor->bytes.data()) file.forget(mapped.tensor->bytes);
      place_matrix(weights, mapped.spec, weight.take());
    } else {
      Result<TensorView> vector = load_vector(mapped, backend, next_vector);
      if (!vector.ok()) return vector.error();
      place_vector(weights, mapped.spec, vector.value());
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
