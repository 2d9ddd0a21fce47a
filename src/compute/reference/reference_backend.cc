#include "compute/reference/reference_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/host_limits.h"
#include "compute/check_args.h"
#include "compute/cpu/thread_pool.h"
#include "compute/dequantize.h"
#include "compute/host_backend.h"
#include "compute/reference/choose.h"
#include "compute/reference/edit_logits.h"
#include "compute/reference/kept_numbers.h"

namespace llorch::compute {
namespace {

using tensor::DType;

constexpr double kPi = 3.14159265358979323846;

std::int64_t index_at(const TensorView& view, std::int64_t i) {
  return *view.row<std::int32_t>(i);
}

float vector_at(const TensorView& view, std::int64_t i) {
  return *view.row<float>(i);
}

std::vector<float> weight_row(const Weight& weight, std::int64_t row,
                              WeightForm form = WeightForm::Exact) {
  std::vector<float> values(static_cast<std::size_t>(weight.cols));
  const auto bytes = static_cast<std::size_t>(row_bytes(weight));
  const auto* begin =
      static_cast<const std::byte*>(weight.data) + static_cast<std::size_t>(row) * bytes;
  if (form == WeightForm::Half) {
    round_weights(weight.dtype, {begin, bytes}, values);
    return values;
  }
  const Status status = dequantize(weight.dtype, {begin, bytes}, values);
  CHECK(status.ok(), "load_weight accepted a type that dequantize does not know");
  return values;
}

// A row as products take it, exactly.
std::vector<double> input_row(InputForm form, std::span<const float> x) {
  if (form != InputForm::Int8) {
    std::vector<float> rounded(x.size());
    round_input(form, x, rounded.data());
    return {rounded.begin(), rounded.end()};
  }
  constexpr auto kBlock = static_cast<std::size_t>(kInputBlock);
  std::vector<std::int8_t> quants(x.size());
  std::vector<float> scales((x.size() + kBlock - 1) / kBlock);
  quantize_input(x, quants.data(), scales.data());
  std::vector<double> values(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    values[i] = static_cast<double>(scales[i / kBlock]) * quants[i];
  return values;
}

double activate(Activation kind, double x) {
  switch (kind) {
    case Activation::GeluTanh:
      return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / kPi) * (x + 0.044715 * x * x * x)));
    case Activation::GeluErf:
      return 0.5 * x * (1.0 + std::erf(x / std::sqrt(2.0)));
    case Activation::Silu:
      return x / (1.0 + std::exp(-x));
    case Activation::Relu:
      return x > 0 ? x : 0;
  }
  return x;
}

// Scores to weights that sum to 1, each rounded before they are summed where a form says so.
void normalise(std::vector<double>& scores, InputForm form = InputForm::F32) {
  double max = -std::numeric_limits<double>::infinity();
  for (const double score : scores) max = std::max(max, score);
  double sum = 0;
  for (double& score : scores) {
    score = std::exp(score - max);
    if (form != InputForm::F32) {
      const auto weight = static_cast<float>(score);
      score = input_row(form, {&weight, 1}).front();
    }
    sum += score;
  }
  for (double& score : scores) score /= sum;
}

// One query head of one row.
void attend(const AttentionArgs& args, const AttentionForm& form, std::int64_t row,
            std::int64_t head) {
  const TensorView& cache = args.cache.keys;
  const std::int64_t head_dim = args.q.dims[2];
  const std::int64_t block_tokens = cache.dims[2];
  const std::int64_t kv_head = head / (args.q.dims[1] / cache.dims[1]);
  const std::int64_t position = index_at(args.positions, row);
  const std::int64_t sequence = index_at(args.sequences, row);
  CHECK(position >= 0 && position / block_tokens < args.block_tables.dims[1]);
  CHECK(sequence >= 0 && sequence < args.block_tables.dims[0]);
  const std::int32_t* table = args.block_tables.row<std::int32_t>(sequence);
  const std::int64_t first =
      args.window > 0 ? std::max<std::int64_t>(0, position - args.window + 1) : 0;
  const std::vector<double> q = input_row(
      form.query, {args.q.row<float>(row) + head * head_dim, static_cast<std::size_t>(head_dim)});

  std::vector<double> scores;
  for (std::int64_t key = first; key <= position; ++key) {
    double score = 0;
    for (std::int64_t i = 0; i < head_dim; ++i) {
      const std::int64_t at =
          cache_index(cache, table[key / block_tokens], kv_head, key % block_tokens, i);
      score += q[static_cast<std::size_t>(i)] * read_cache(cache, at, form.cache);
    }
    score *= args.scale;
    if (args.softcap > 0) score = args.softcap * std::tanh(score / args.softcap);
    scores.push_back(score);
  }
  if (args.scores) {
    CHECK(position < args.scores.dims[2]);
    float* out = args.scores.row<float>(row) + head * args.scores.dims[2];
    for (std::int64_t key = 0; key < args.scores.dims[2]; ++key) {
      out[key] = key < first || key > position
                     ? -std::numeric_limits<float>::infinity()
                     : static_cast<float>(scores[static_cast<std::size_t>(key - first)]);
    }
  }
  normalise(scores, form.weights);
  for (std::int64_t i = 0; i < head_dim; ++i) {
    double sum = 0;
    for (std::int64_t key = first; key <= position; ++key) {
      const std::int64_t at =
          cache_index(args.cache.values, table[key / block_tokens], kv_head, key % block_tokens, i);
      sum += scores[static_cast<std::size_t>(key - first)] *
             read_cache(args.cache.values, at, form.cache);
    }
    args.out.row<float>(row)[head * head_dim + i] = static_cast<float>(sum);
  }
}

// So many sums are made side by side: in one alone each addition waits for the one before it.
constexpr std::int64_t kSide = 4;

// x times each row of w, added to what `sums` begin with in the order of the definition.
std::array<double, kSide> add_products(const std::vector<double>& x,
                                       const std::array<std::vector<float>, kSide>& w,
                                       const std::array<double, kSide>& sums) {
  auto [a, b, c, d] = sums;
  const std::array<const float*, kSide> rows = {w[0].data(), w[1].data(), w[2].data(), w[3].data()};
  for (std::size_t i = 0; i < x.size(); ++i) {
    a += x[i] * rows[0][i];
    b += x[i] * rows[1][i];
    c += x[i] * rows[2][i];
    d += x[i] * rows[3][i];
  }
  return {a, b, c, d};
}

class ReferenceBackend final : public HostBackend {
 public:
  explicit ReferenceBackend(ReferenceForms forms) : forms_(std::move(forms)) {}

  std::string name() const override { return "reference"; }
  std::string device_class() const override { return "reference"; }

  Result<Weight> load_weight(const WeightSource& source) override {
    const bool is_multiplied = source.use != WeightUse::LookUp;
    if (is_multiplied && weight_form(source.dtype) == WeightForm::Half &&
        !can_round_weights(source.dtype)) {
      return Error{ErrorCode::Unsupported,
                   fmt::format("{}: weights of {} cannot be rounded to half", source.name,
                               tensor::name(source.dtype))};
    }
    return load_host_weight(source);
  }
  InputForm input_form(DType weight) const override { return forms_.products(weight); }
  WeightForm weight_form(DType weight) const override { return forms_.weights(weight); }
  AttentionForm attention_form(DType cache) const override { return forms_.attention(cache); }
  std::int32_t step_rows() const override { return 64; }
  Status reserve(const StepLimits&) override { return ok_status(); }

  void embed(const EmbedArgs& args) override {
    check_args(args);
    for (std::int64_t r = 0; r < args.out.rows(); ++r) {
      const std::int64_t id = index_at(args.ids, r);
      CHECK(id >= 0 && id < args.table->rows);
      const std::vector<float> values = weight_row(*args.table, id);
      for (std::int64_t i = 0; i < args.out.dims[1]; ++i) {
        float& out = args.out.row<float>(r)[i];
        const float value = values[static_cast<std::size_t>(i)] * args.scale;
        out = args.accumulate ? out + value : value;
      }
    }
  }

  void layer_norm(const LayerNormArgs& args) override {
    check_args(args);
    const std::int64_t dim = args.x.dims[1];
    for (std::int64_t r = 0; r < args.x.rows(); ++r) {
      const float* x = args.x.row<float>(r);
      double mean = 0;
      for (std::int64_t i = 0; i < dim; ++i) mean += x[i];
      mean /= static_cast<double>(dim);
      double variance = 0;
      for (std::int64_t i = 0; i < dim; ++i) variance += (x[i] - mean) * (x[i] - mean);
      variance /= static_cast<double>(dim);
      for (std::int64_t i = 0; i < dim; ++i) {
        const double bias = args.bias ? vector_at(args.bias, i) : 0;
        args.out.row<float>(r)[i] = static_cast<float>(
            (x[i] - mean) / std::sqrt(variance + args.epsilon) * vector_at(args.weight, i) + bias);
      }
    }
  }

  void rms_norm(const RmsNormArgs& args) override {
    check_args(args);
    const std::int64_t dim = args.x.dims[args.x.rank - 1];
    const std::int64_t heads = args.x.row_elements() / dim;
    for (std::int64_t r = 0; r < args.x.rows() * heads; ++r) {
      const float* x = args.x.row<float>(r / heads) + r % heads * dim;
      float* out = args.out.row<float>(r / heads) + r % heads * dim;
      double squares = 0;
      for (std::int64_t i = 0; i < dim; ++i) squares += static_cast<double>(x[i]) * x[i];
      const double root = std::sqrt(squares / static_cast<double>(dim) + args.epsilon);
      for (std::int64_t i = 0; i < dim; ++i) {
        const double value = x[i] / root * vector_at(args.weight, i);
        out[i] = static_cast<float>(args.accumulate ? out[i] + value : value);
      }
    }
  }

  void linear(const LinearArgs& args) override {
    check_args(args);
    for (const LinearTarget& target : args.targets) {
      const InputForm form = input_form(target.weight->dtype);
      std::vector<std::vector<double>> input;
      for (std::int64_t r = 0; r < args.x.rows(); ++r)
        input.push_back(input_row(form, forms_.taken(form, args.x, r)));
      pool_.parallel_for(target.weight->rows, [&](int, std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; n += kSide)
          multiply(target, input, n, std::min(kSide, end - n));
      });
    }
  }

  void activation(const ActivationArgs& args) override {
    check_args(args);
    for (std::int64_t r = 0; r < args.x.rows(); ++r) {
      for (std::int64_t i = 0; i < args.x.dims[1]; ++i) {
        double value = activate(args.kind, args.x.row<float>(r)[i]);
        if (args.gate_with) value *= args.gate_with.row<float>(r)[i];
        args.out.row<float>(r)[i] = static_cast<float>(value);
      }
    }
  }

  void rope_angles(const RopeAnglesArgs& args) override {
    check_args(args);
    const std::int64_t pairs = args.frequencies.dims[0];
    for (std::int64_t r = 0; r < args.out.rows(); ++r) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double angle =
            static_cast<double>(index_at(args.positions, r)) * vector_at(args.frequencies, i);
        float* out = args.out.row<float>(r) + i;
        out[0] = static_cast<float>(std::cos(angle) * args.magnitude);
        out[pairs] = static_cast<float>(std::sin(angle) * args.magnitude);
      }
    }
  }

  void rope(const RopeArgs& args) override {
    check_args(args);
    const std::int64_t half = args.angles.dims[1] / 2;
    const bool adjacent = args.style == RopeStyle::Adjacent;
    for (std::int64_t r = 0; r < args.x.rows(); ++r) {
      for (std::int64_t head = 0; head < args.x.dims[1]; ++head) {
        float* x = args.x.row<float>(r) + head * args.x.dims[2];
        for (std::int64_t i = 0; i < half; ++i) {
          const double cosine = args.angles.row<float>(r)[i];
          const double sine = args.angles.row<float>(r)[half + i];
          float& a = x[adjacent ? 2 * i : i];
          float& b = x[adjacent ? 2 * i + 1 : i + half];
          const double rotated_a = a * cosine - b * sine;
          const double rotated_b = a * sine + b * cosine;
          a = static_cast<float>(rotated_a);
          b = static_cast<float>(rotated_b);
        }
      }
    }
  }

  void write_kv(const WriteKvArgs& args) override {
    check_args(args);
    const TensorView& keys = args.cache.keys;
    for (std::int64_t r = 0; r < args.keys.rows(); ++r) {
      const std::int64_t block = index_at(args.slots, r) / keys.dims[2];
      const std::int64_t offset = index_at(args.slots, r) % keys.dims[2];
      for (std::int64_t head = 0; head < keys.dims[1]; ++head) {
        const auto values_of = [&](const TensorView& rows) {
          return std::span<const float>(rows.row<float>(r) + head * keys.dims[3],
                                        static_cast<std::size_t>(keys.dims[3]));
        };
        write_cache(keys, cache_index(keys, block, head, offset, 0), values_of(args.keys));
        write_cache(args.cache.values, cache_index(args.cache.values, block, head, offset, 0),
                    values_of(args.values));
      }
    }
  }

  void attention(const AttentionArgs& args) override {
    check_args(args);
    for (const SequenceRun& run : args.runs) {
      for (std::int32_t i = 0; i < run.rows; ++i) {
        CHECK(index_at(args.sequences, run.first_row + i) == run.sequence);
        CHECK(index_at(args.positions, run.first_row + i) == run.first_position + i);
      }
    }
    for (std::int64_t r = 0; r < args.q.rows(); ++r) {
      for (std::int64_t head = 0; head < args.q.dims[1]; ++head)
        attend(args, attention_form(args.cache.keys.dtype), r, head);
    }
  }

  void gather_rows(const GatherRowsArgs& args) override {
    check_args(args);
    for (std::int64_t r = 0; r < args.out.rows(); ++r) {
      const std::int64_t from = index_at(args.indices, r);
      CHECK(from >= 0 && from < args.x.rows());
      for (std::int64_t i = 0; i < args.x.dims[1]; ++i)
        args.out.row<float>(r)[i] = args.x.row<float>(from)[i];
    }
  }

  void softcap(const SoftcapArgs& args) override {
    check_args(args);
    for (std::int64_t r = 0; r < args.x.rows(); ++r) {
      for (std::int64_t i = 0; i < args.x.dims[1]; ++i) {
        args.out.row<float>(r)[i] =
            static_cast<float>(args.cap * std::tanh(double{args.x.row<float>(r)[i]} / args.cap));
      }
    }
  }

  void softmax(const SoftmaxArgs& args) override {
    check_args(args);
    for (std::int64_t r = 0; r < args.x.rows(); ++r) {
      const float* x = args.x.row<float>(r);
      std::vector<double> values(x, x + args.x.dims[1]);
      normalise(values);
      for (std::size_t i = 0; i < values.size(); ++i)
        args.out.row<float>(r)[i] = static_cast<float>(values[i]);
    }
  }

  void argmax(const ArgmaxArgs& args) override {
    check_args(args);
    for (std::int64_t r = 0; r < args.x.rows(); ++r) {
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      const std::span<const float> x(args.x.row<float>(r),
                                     static_cast<std::size_t>(args.x.dims[1]));
      std::int64_t best = -1;
      for (std::size_t i = 0; i < x.size(); ++i) {
        if (x[i] > (best < 0 ? -kInfinity : x[static_cast<std::size_t>(best)]))
          best = static_cast<std::int64_t>(i);
      }
      const bool is_sound =
          std::all_of(x.begin(), x.end(), [](float value) { return value < kInfinity; });
      *args.out.row<std::int32_t>(r) = is_sound ? static_cast<std::int32_t>(best) : -1;
    }
  }

  bool can_draw() const override { return true; }
  void draw(const DrawArgs& args) override {
    check_args(args);
    argmax({.x = args.x, .out = args.out});
    for (std::int64_t r = 0; r < args.x.rows(); ++r) {
      auto& out = *args.out.row<std::int32_t>(r);
      const float temperature = static_cast<const float*>(args.temperatures.data)[r];
      if (temperature == 0 || out < 0) continue;
      const std::span<const float> x(args.x.row<float>(r),
                                     static_cast<std::size_t>(args.x.dims[1]));
      const auto* halves = args.draws.row<std::uint32_t>(r);
      out = draw_token(x, x[static_cast<std::size_t>(out)], temperature,
                       halves[0] | (std::uint64_t{halves[1]} << 32));
    }
  }
  bool can_choose() const override { return true; }
  void choose(const ChooseArgs& args) override {
    check_args(args);
    argmax({.x = args.x, .out = args.out});
    for (std::int64_t r = 0; r < args.x.rows(); ++r) {
      auto& out = *args.out.row<std::int32_t>(r);
      if (out < 0) continue;
      std::array<std::int32_t, kChoiceWords> words;
      std::copy_n(args.rules.row<std::int32_t>(r), words.size(), words.begin());
      const auto rule = std::bit_cast<ChoiceRule>(words);
      out =
          choose_token({args.x.row<float>(r), static_cast<std::size_t>(args.x.dims[1])}, rule, out);
    }
  }
  bool can_edit() const override { return true; }
  void edit_logits(const EditLogitsArgs& args) override {
    check_args(args);
    for (std::int64_t r = 0; r < args.x.rows(); ++r) {
      std::array<std::int32_t, kEditWords> words;
      std::copy_n(args.rules.row<std::int32_t>(r), words.size(), words.begin());
      const auto rule = std::bit_cast<EditRule>(words);
      const auto* changes = static_cast<const LogitChange*>(args.changes.data);
      const auto* mask = rule.mask < 0 ? nullptr : args.masks.row<std::uint32_t>(rule.mask);
      const auto dim = static_cast<std::size_t>(args.x.dims[1]);
      const auto num_words = static_cast<std::size_t>(mask_words(args.x.dims[1]));
      edit_row({args.x.row<float>(r), dim}, rule,
               {changes + rule.first_change, static_cast<std::size_t>(rule.num_changes)},
               {mask, mask == nullptr ? 0 : num_words});
    }
  }

 private:
  // The columns [first, first + count) of the product; count is at most kSide.
  void multiply(const LinearTarget& target, const std::vector<std::vector<double>>& input,
                std::int64_t first, std::int64_t count) const {
    std::array<std::vector<float>, kSide> w;
    std::array<double, kSide> begin{};
    for (std::int64_t k = 0; k < kSide; ++k) {
      const std::int64_t n = first + std::min(k, count - 1);
      w[static_cast<std::size_t>(k)] =
          weight_row(*target.weight, n, weight_form(target.weight->dtype));
      begin[static_cast<std::size_t>(k)] = target.bias ? vector_at(target.bias, n) : 0;
    }
    for (std::size_t r = 0; r < input.size(); ++r) {
      const std::array<double, kSide> sums = add_products(input[r], w, begin);
      float* out = target.out.row<float>(static_cast<std::int64_t>(r)) + first;
      for (std::int64_t k = 0; k < count; ++k)
        out[k] = static_cast<float>(sums[static_cast<std::size_t>(k)] +
                                    (target.accumulate ? out[k] : 0));
    }
  }

  ReferenceForms forms_;
  ThreadPool pool_{base::usable_cores()};
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(ReferenceForms forms) {
  return std::make_unique<ReferenceBackend>(std::move(forms));
}

}  // namespace llorch::compute
