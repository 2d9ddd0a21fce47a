// The precision in which products and attention take their input: what a backend declares for each
// type of weights (Backend::input_form) and of caches (Backend::attention_form), what the reference
// computes in double, and what kernels are held to.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "tensor/dtype.h"

namespace llorch::compute {

enum class InputForm : std::uint8_t {
  F32,   // as it is
  F16,   // each value rounded to the nearest half, ties to even; the largest half for finite values
         // beyond
  BF16,  // each value rounded to the nearest bfloat16, ties to even
  Int8,  // blocks of whole numbers with a scale each: quantize_input()
};

// Values that share a scale; the last block of a row may be short.
inline constexpr std::int64_t kInputBlock = 32;

// What attention multiplies, and what of the cache it multiplies it with. Scores, their
// exponentials and all sums are float32 or better.
struct AttentionForm {
  InputForm query = InputForm::F32;  // each head's, times the keys
  // exp(score - largest score), times the values; not Int8. Their sum, which divides the result, is
  // of the same rounded numbers.
  InputForm weights = InputForm::F32;
  InputForm cache = InputForm::F32;  // each number that is kept; not Int8
  bool operator==(const AttentionForm&) const = default;
};

// What products multiply the input with.
enum class WeightForm : std::uint8_t {
  Exact,  // the numbers that the type stands for
  Half,   // those rounded to the nearest half: round_weights()
};

std::string_view name(InputForm form);   // "f32", "f16", "bf16", "int8"
std::string_view name(WeightForm form);  // "exact", "half"
// Nothing for any other name.
std::optional<InputForm> find_input_form(std::string_view name);
std::optional<WeightForm> find_weight_form(std::string_view name);

// What a wish for one form means for weights of a type: whole numbers are multiplied with whole
// numbers, so Int8 is for block types and leaves the others at F32.
InputForm form_for(InputForm wish, tensor::DType weight);

// The one definition of Int8, which kernels share or equal bit for bit. For each block of 32:
// scale = absmax / 127 (float32, kept so), quant = value · (127 / absmax) in float32, rounded to
// the nearest whole number, ties to even; within -127..127. A block whose absmax is below 4e-37 is
// zero; one with an infinity or NaN has a NaN as its scale and zeros as its quants.
// values.size() quants and one scale per block.
void quantize_input(std::span<const float> values, std::int8_t* quants, float* scales);

// Weights of a type as WeightForm::Half has them, from the blocks that hold exactly out.size(). For
// types with a scale for few values (Q6_K: 16; Q4_K, Q5_K: 32) that scale, and the minimum, are
// rounded to half first; then scale · quant + offset is rounded once.
void round_weights(tensor::DType dtype, std::span<const std::byte> blocks, std::span<float> out);
// Whether it knows the type: F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K.
bool can_round_weights(tensor::DType dtype);

// The values that the form stands for, as floats; `out` may be `values`. Int8: scale · quant,
// rounded to float32, which costs at most 6e-8 of a value and is for kernels that multiply floats.
void round_input(InputForm form, std::span<const float> values, float* out);

}  // namespace llorch::compute
