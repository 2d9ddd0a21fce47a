#include "compute/input_form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/enum_names.h"
#include "tensor/half.h"

namespace llorch::compute {
namespace {

constexpr base::EnumNames<InputForm::Int8> kNames("f32", "f16", "bf16", "int8");
constexpr base::EnumNames<WeightForm::Half> kWeightNames("exact", "half");

constexpr float kQuantMax = 127.0F;
constexpr float kSmallestMax = 4e-37F;  // below it 127 / absmax is infinite

// The scale of one block of at most kInputBlock values.
float quantize_block(std::span<const float> values, std::int8_t* quants) {
  float largest = 0;
  bool finite = true;
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
    finite = finite && std::isfinite(value);
  }
  if (!finite || largest < kSmallestMax) {
    std::fill_n(quants, values.size(), std::int8_t{0});
    return finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  }
  const float inverse = kQuantMax / largest;
  for (std::size_t i = 0; i < values.size(); ++i)
    quants[i] = static_cast<std::int8_t>(std::nearbyint(values[i] * inverse));
  return largest / kQuantMax;
}

float round_to_half(float value) {
  constexpr float kLargest = 65504.0F;
  if (std::isfinite(value)) value = std::clamp(value, -kLargest, kLargest);
  return tensor::half_to_float(tensor::float_to_half(value));
}

template <class F>
void for_each_block(std::span<const float> values, const F& visit) {
  constexpr auto kBlock = static_cast<std::size_t>(kInputBlock);
  for (std::size_t at = 0; at < values.size(); at += kBlock)
    visit(at, values.subspan(at, std::min(kBlock, values.size() - at)));
}

}  // namespace

std::string_view name(InputForm form) {
  return kNames[form];
}

std::optional<InputForm> find_input_form(std::string_view wanted) {
  return kNames.find(wanted);
}

std::string_view name(WeightForm form) {
  return kWeightNames[form];
}

std::optional<WeightForm> find_weight_form(std::string_view wanted) {
  return kWeightNames.find(wanted);
}

InputForm form_for(InputForm wish, tensor::DType weight) {
  return wish == InputForm::Int8 && !tensor::is_block_type(weight) ? InputForm::F32 : wish;
}

void quantize_input(std::span<const float> values, std::int8_t* quants, float* scales) {
  for_each_block(values, [&](std::size_t at, std::span<const float> block) {
    *scales++ = quantize_block(block, quants + at);
  });
}

void round_input(InputForm form, std::span<const float> values, float* out) {
  switch (form) {
    case InputForm::F32:
      if (out != values.data()) std::copy(values.begin(), values.end(), out);
      return;
    case InputForm::F16:
      for (const float value : values) *out++ = round_to_half(value);
      return;
    case InputForm::BF16:
      for (const float value : values)
        *out++ = tensor::bfloat16_to_float(tensor::float_to_bfloat16(value));
      return;
    case InputForm::Int8:
      for_each_block(values, [&](std::size_t at, std::span<const float> block) {
        std::array<std::int8_t, kInputBlock> quants;
        const float scale = quantize_block(block, quants.data());
        for (std::size_t i = 0; i < block.size(); ++i)
          out[at + i] = scale * static_cast<float>(quants[i]);
      });
      return;
  }
}

}  // namespace llorch::compute
