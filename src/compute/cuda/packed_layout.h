// How weights lie in device memory, as a function of numbers alone: plans are made without a
// device. Types that tensor cores multiply at speed are packed (packed.cuh); the others stay as the
// file has them.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "compute/cuda/host_device.h"
#include "compute/input_form.h"
#include "compute/weight.h"

namespace llorch::compute::cuda {

// What a packed tile holds.
enum class PackedForm : std::uint8_t {
  None,  // not packed
  F16,   // F16 as they are, BF16 rounded: halves hold more of its digits than inputs would
  Q8,    // bytes and a scale for 32
  Q4,    // four bits, scale and offset for 32: Q4_0, Q4_1, Q4_K
  Q5,    // five bits likewise: Q5_0, Q5_1, Q5_K
  Q6,    // six bits and a scale for 16: Q6_K
};

// A tile is 16 outputs x 64 inputs; four tiles of the same inputs stand together.
inline constexpr int kTileOutputs = 16;
inline constexpr int kTileInputs = 64;
inline constexpr int kTileGroup = 4;
inline constexpr int kGroupOutputs = kTileOutputs * kTileGroup;
inline constexpr int kSliceTiles = 4;  // 256 inputs are summed from zero, slices then ascending

constexpr PackedForm packed_form(tensor::DType dtype) {
  using tensor::DType;
  switch (dtype) {
    case DType::F16:
    case DType::BF16:
      return PackedForm::F16;
    case DType::Q8_0:
      return PackedForm::Q8;
    case DType::Q4_0:
    case DType::Q4_1:
    case DType::Q4_K:
      return PackedForm::Q4;
    case DType::Q5_0:
    case DType::Q5_1:
    case DType::Q5_K:
      return PackedForm::Q5;
    case DType::Q6_K:
      return PackedForm::Q6;
    default:
      return PackedForm::None;
  }
}

LLORCH_HOST_DEVICE constexpr std::int64_t tile_bytes(PackedForm form) {
  switch (form) {
    case PackedForm::F16:
      return 2048;
    case PackedForm::Q8:
      return 1024 + 64;
    case PackedForm::Q4:
      return 512 + 128;
    case PackedForm::Q5:
      return 512 + 128 + 128;
    case PackedForm::Q6:
      return 512 + 256 + 128;
    case PackedForm::None:
      break;
  }
  return 0;
}

// The form in which products with packed weights take their input.
constexpr InputForm input_form_of(PackedForm form) {
  return form == PackedForm::None ? InputForm::F32 : InputForm::F16;
}

LLORCH_HOST_DEVICE constexpr std::int64_t padded_inputs(std::int64_t cols) {
  return (cols + kTileInputs - 1) / kTileInputs * kTileInputs;
}

// 16-bit numbers that rows of this width take, whole blocks included.
constexpr std::int64_t rounded_elements(std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kBlock = 128;
  return (rows + kBlock - 1) / kBlock * kBlock * padded_inputs(cols);
}

// Bytes of a packed matrix: outputs in whole groups, inputs in whole tiles, zeros beyond the last.
constexpr std::int64_t packed_bytes(PackedForm form, std::int64_t rows, std::int64_t cols) {
  const std::int64_t groups = (rows + kGroupOutputs - 1) / kGroupOutputs;
  return groups * kTileGroup * (padded_inputs(cols) / kTileInputs) * tile_bytes(form);
}

// Where the two forms of a weight are in its storage.
struct WeightPlace {
  PackedForm form = PackedForm::None;
  std::int64_t packed = 0;  // bytes of the packed form, which comes first
  std::int64_t plain = 0;   // bytes as the file has them, behind it
  std::int64_t bytes() const { return packed + plain; }
};

// What is multiplied is packed where its type can be, what is looked up stays plain; what is both
// is kept twice, but for halves, which are looked up in their tiles.
inline WeightPlace place_weight(tensor::DType dtype, WeightUse use, std::int64_t rows,
                                std::int64_t cols, bool tensor_cores) {
  const tensor::DTypeInfo& type = tensor::info(dtype);
  const std::int64_t plain = rows * (cols / type.block_elems * type.block_bytes);
  const PackedForm form = tensor_cores ? packed_form(dtype) : PackedForm::None;
  if (form == PackedForm::None || use == WeightUse::LookUp) return {PackedForm::None, 0, plain};
  const bool is_same = dtype == tensor::DType::F16;
  return {form, packed_bytes(form, rows, cols), use == WeightUse::Both && !is_same ? plain : 0};
}

}  // namespace llorch::compute::cuda
