// A whole decode step as a graph: embed, five kernels a layer, head, argmax; the token chosen is
// the next step's input. First a small model against sums in double on the host, then the speed of
// three models in one weight format (LAB_FORMAT).
#include "decode_attention.cuh"
#include "narrow.cuh"
#include "shapes.h"

#ifndef LAB_FORMAT
#define LAB_FORMAT Plain<F16>
#endif

namespace lab {
namespace {

using Format = LAB_FORMAT;
static_assert(std::is_same_v<Format::Type, F16>, "the step rounds what it hands on to halves");
constexpr float kEpsilon = 1e-5F;
constexpr int kPositionsMax = 1024;

// Query and key tiles hold dimensions i .. i + 7 in their lower half and i + dim / 2 … in the
// upper, so that a thread that has the sums has both values that rotate together. Value tiles are
// as they are.
struct PlaceHeads {
  const float* bias;
  const float2* angles;  // (kPositionsMax, dim / 2): cosine, sine
  const int* positions;
  const int* sequences;
  __half* q;
  Cache cache;
  int heads;
  int dim;
  __device__ void operator()(int tile, int j, int row, float low, float high) const {
    const int per_head = dim / kTileOutputs;
    const int head = tile / per_head;
    const int part = tile % per_head;
    low += bias[tile * kTileOutputs + j];
    high += bias[tile * kTileOutputs + j + 8];
    const int position = positions[row];
    const bool is_value = head >= heads + cache.kv_heads;
    const int first = is_value ? part * 16 + j : part * 8 + j;
    const int second = is_value ? first + 8 : first + dim / 2;
    if (!is_value) {
      const float2 angle = angles[position * (dim / 2) + first];
      const float turned = low * angle.x - high * angle.y;
      high = high * angle.x + low * angle.y;
      low = turned;
    }
    __half* to = q + (static_cast<std::int64_t>(row) * heads + head) * dim;
    if (head >= heads) {
      const int kv_head = head - heads - (is_value ? cache.kv_heads : 0);
      const std::int64_t page =
          cache.pages[sequences[row] * cache.pages_max + position / kPageTokens];
      to = (is_value ? cache.values : cache.keys) +
           ((page * cache.kv_heads + kv_head) * kPageTokens + position % kPageTokens) * dim;
    }
    to[first] = __float2half_rn(low);
    to[second] = __float2half_rn(high);
  }
};

// Takes the tokens chosen by the last step, if any, and steps each row's position.
__global__ void embed(const __half* table, unsigned long long* best, int* tokens, int* positions,
                      int hidden, float* x) {
  wait_for_previous();
  release_next();
  const int row = blockIdx.x;
  __shared__ int token;
  if (threadIdx.x == 0) {
    const unsigned long long chosen = best[row];
    token = chosen != 0 ? static_cast<int>(~static_cast<unsigned>(chosen)) : tokens[row];
    tokens[row] = token;
    best[row] = 0;
    ++positions[row];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < hidden; i += blockDim.x)
    x[row * hidden + i] = __half2float(table[static_cast<std::int64_t>(token) * hidden + i]);
}

// The largest logit of each row; the lower id of equal ones. Integers, so any order of blocks.
__global__ void argmax(const float* logits, int vocab, unsigned long long* best) {
  wait_for_previous();
  release_next();
  const float* row = logits + static_cast<std::int64_t>(blockIdx.y) * vocab;
  unsigned long long mine = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < vocab; i += gridDim.x * blockDim.x) {
    const int word = __float_as_int(row[i]);
    const unsigned ordered = static_cast<unsigned>(word >= 0 ? word | 0x80000000 : ~word);
    const unsigned long long key =
        (static_cast<unsigned long long>(ordered) << 32) | static_cast<unsigned>(~i);
    mine = max(mine, key);
  }
  for (int step = 16; step > 0; step /= 2)
    mine = max(mine, __shfl_xor_sync(0xFFFFFFFFU, mine, step));
  if (threadIdx.x % 32 == 0) atomicMax(best + blockIdx.y, mine);
}

struct Layer {
  const std::uint8_t* qkv;
  const std::uint8_t* out;
  const std::uint8_t* gate_up;
  const std::uint8_t* down;
};

// Everything a step reads and writes; rows are sequences of their own.
template <int Dim>
class Engine {
 public:
  Engine(const Model& model, int rows, int context)
      : model_(model),
        rows_(rows),
        pages_((context + kPageTokens - 1) / kPageTokens),
        gain_(std::vector<float>(model.hidden, 1.0F)),
        bias_(std::vector<float>(model.qkv(), 0.01F)),
        x_(static_cast<std::size_t>(rows) * model.hidden),
        normed_(static_cast<std::size_t>(rows) * model.hidden),
        q_(static_cast<std::size_t>(rows) * model.heads * Dim),
        attended_(q_.size()),
        inner_(static_cast<std::size_t>(rows) * model.ffn),
        logits_(static_cast<std::size_t>(rows) * model.vocab),
        best_(std::vector<unsigned long long>(rows, 0)),
        parts_(static_cast<std::size_t>(rows) * model.heads * splits() * (Dim + 2)),
        tickets_(std::vector<int>(static_cast<std::size_t>(rows) * model.kv_heads, 0)),
        keys_(layer_cache() * model.layers),
        values_(layer_cache() * model.layers) {
    std::vector<int> table(static_cast<std::size_t>(rows) * pages_);
    for (std::size_t i = 0; i < table.size(); ++i)
      table[i] = static_cast<int>(table.size() - 1 - i);
    pages_table_ = Array<int>(table);
    std::vector<int> sequences(rows);
    for (int i = 0; i < rows; ++i) sequences[i] = i;
    sequences_ = Array<int>(sequences);
    tokens_ = Array<int>(sequences);
    std::vector<float2> angles;
    for (int p = 0; p < kPositionsMax; ++p) {
      for (int i = 0; i < Dim / 2; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * i / Dim);
        angles.push_back(
            make_float2(static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))));
      }
    }
    angles_ = Array<float2>(angles);
    scramble(keys_.data(), keys_.bytes(), 1);
    scramble(values_.data(), values_.bytes(), 2);
    begin_at(0);
  }

  // The next step computes this position.
  void begin_at(int position) { positions_ = Array<int>(std::vector<int>(rows_, position - 1)); }

  void enqueue(const std::vector<Layer>& layers, const std::uint8_t* head, const __half* table,
               cudaStream_t stream) {
    launch(embed, dim3(rows_), 256, 0, stream, dependent, table, best_.data(), tokens_.data(),
           positions_.data(), model_.hidden, x_.data());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const Cache cache{keys_.data() + i * layer_cache(), values_.data() + i * layer_cache(),
                        pages_table_.data(), pages_, model_.kv_heads};
      const int tiles = model_.hidden / kTileInputs;
      normed_product(Narrow{layers[i].qkv, model_.qkv() / 16, tiles, rows_},
                     PlaceHeads{bias_.data(), angles_.data(), positions_.data(), sequences_.data(),
                                q_.data(), cache, model_.heads, Dim},
                     stream);
      const Attend attend{q_.data(),
                          attended_.data(),
                          nullptr,
                          cache,
                          positions_.data(),
                          sequences_.data(),
                          model_.heads / model_.kv_heads,
                          1.4426950408889634F / std::sqrt(static_cast<float>(Dim))};
      run_decode<Dim>(attend, Workspace{parts_.data(), tickets_.data(), splits()}, rows_, stream,
                      dependent);
      product(Narrow{layers[i].out, model_.hidden / 16, model_.heads * Dim / 64, rows_},
              Rounded{attended_.data(), model_.heads * Dim},
              Store{x_.data(), model_.hidden, nullptr, true}, stream);
      normed_product(Narrow{layers[i].gate_up, 2 * model_.ffn / 16, tiles, rows_},
                     Gated{inner_.data(), model_.ffn}, stream);
      product(Narrow{layers[i].down, model_.hidden / 16, model_.ffn / 64, rows_},
              Rounded{inner_.data(), model_.ffn}, Store{x_.data(), model_.hidden, nullptr, true},
              stream);
    }
    normed_product(Narrow{head, model_.vocab / 16, model_.hidden / kTileInputs, rows_},
                   Store{logits_.data(), model_.vocab, nullptr, false}, stream);
    launch(argmax, dim3(64, rows_), 256, 0, stream, dependent, logits_.data(), model_.vocab,
           best_.data());
  }

  std::vector<float> logits() const { return logits_.host(); }
  std::vector<int> tokens() const { return tokens_.host(); }

  bool dependent = true;
  bool own_norm = false;  // norms as kernels of their own everywhere, not only where it is better

 private:
  std::size_t layer_cache() const {
    return static_cast<std::size_t>(rows_) * pages_ * model_.kv_heads * kPageTokens * Dim;
  }
  int splits() const { return (pages_ * kPageTokens + kSplitKeys - 1) / kSplitKeys; }

  template <class Input, class Finish>
  void product(const Narrow& args, const Input& input, const Finish& finish, cudaStream_t stream) {
    narrow_chosen<Format>(args, input, finish, stream, dependent);
  }
  template <class Finish>
  void normed_product(const Narrow& args, const Finish& finish, cudaStream_t stream) {
    const Normed norm{x_.data(), gain_.data(), model_.hidden, kEpsilon};
    if (!own_norm && model_.hidden <= kPrologueDim && args.output_tiles <= 800)
      return product(args, norm, finish, stream);
    launch(norm_rows, dim3(rows_), kNormWarps * 32, 0, stream, dependent, norm, normed_.data());
    product(args, Rounded{normed_.data(), model_.hidden}, finish, stream);
  }

  Model model_;
  int rows_;
  int pages_;
  Array<float> gain_;
  Array<float> bias_;
  Array<float> x_;
  Array<__half> normed_;
  Array<__half> q_;
  Array<__half> attended_;
  Array<__half> inner_;
  Array<float> logits_;
  Array<unsigned long long> best_;
  Array<float> parts_;
  Array<int> tickets_;
  Array<__half> keys_;
  Array<__half> values_;
  Array<int> pages_table_;
  Array<int> sequences_;
  Array<int> tokens_;
  Array<int> positions_;
  Array<float2> angles_;
};

// The same model on the host, in double but for the roundings that the step declares.
class HostModel {
 public:
  HostModel(const Model& model, std::uint64_t seed) : m(model) {
    for (int i = 0; i < m.layers; ++i) {
      layers.push_back({random_matrix<Format>(m.qkv(), m.hidden, seed + 10 * i),
                        random_matrix<Format>(m.hidden, m.heads * m.head_dim, seed + 10 * i + 1),
                        random_matrix<Format>(2 * m.ffn, m.hidden, seed + 10 * i + 2),
                        random_matrix<Format>(m.hidden, m.ffn, seed + 10 * i + 3)});
    }
    head = random_matrix<Format>(m.vocab, m.hidden, seed + 5);
    Random random(seed);
    for (int i = 0; i < m.vocab * m.hidden; ++i) table.push_back(__float2half_rn(random.normal()));
    keys.resize(m.layers);
    values.resize(m.layers);
  }

  std::vector<double> step(int token, int position) {
    std::vector<double> x(m.hidden);
    for (int i = 0; i < m.hidden; ++i) x[i] = __half2float(table[token * m.hidden + i]);
    const int group = m.heads / m.kv_heads;
    for (int layer = 0; layer < m.layers; ++layer) {
      const auto& w = layers[layer];
      const std::vector<double> raw = multiply(w[0], normed(x));
      std::vector<double> qkv(raw.size());
      for (int head_index = 0; head_index < m.heads + 2 * m.kv_heads; ++head_index)
        place(raw.data(), head_index, position, qkv.data());
      const int kv_size = m.kv_heads * m.head_dim;
      const double* key = qkv.data() + m.heads * m.head_dim;
      keys[layer].insert(keys[layer].end(), key, key + kv_size);
      values[layer].insert(values[layer].end(), key + kv_size, key + 2 * kv_size);
      std::vector<double> attended(m.heads * m.head_dim);
      for (int h = 0; h < m.heads; ++h) {
        std::vector<double> p(position + 1);
        double sum = 0;
        for (int k = 0; k <= position; ++k) {
          double s = 0;
          for (int d = 0; d < m.head_dim; ++d)
            s += qkv[h * m.head_dim + d] * keys[layer][k * kv_size + h / group * m.head_dim + d];
          sum += p[k] = std::exp(s / std::sqrt(static_cast<double>(m.head_dim)));
        }
        for (int d = 0; d < m.head_dim; ++d) {
          double v = 0;
          for (int k = 0; k <= position; ++k)
            v += p[k] / sum * values[layer][k * kv_size + h / group * m.head_dim + d];
          attended[h * m.head_dim + d] = half(v);
        }
      }
      add(x, multiply(w[1], attended));
      const std::vector<double> both = multiply(w[2], normed(x));
      std::vector<double> inner(m.ffn);
      for (int i = 0; i < m.ffn; ++i) {
        const double gate = both[i / 8 * 16 + i % 8];
        inner[i] = half(gate / (1 + std::exp(-gate)) * both[i / 8 * 16 + 8 + i % 8]);
      }
      add(x, multiply(w[3], inner));
    }
    return multiply(head, normed(x));
  }

  Model m;
  std::vector<std::vector<HostMatrix>> layers;
  HostMatrix head;
  std::vector<__half> table;

 private:
  static double half(double v) { return half_value(static_cast<float>(v)); }
  static void add(std::vector<double>& x, const std::vector<double>& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  static std::vector<double> multiply(const HostMatrix& w, const std::vector<double>& x) {
    std::vector<double> y(w.outputs);
    for (int o = 0; o < w.outputs; ++o)
      for (int k = 0; k < w.inputs; ++k)
        y[o] += w.values[static_cast<std::size_t>(o) * w.inputs + k] * x[k];
    return y;
  }
  static std::vector<double> normed(const std::vector<double>& x) {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double root = std::sqrt(squares / x.size() + kEpsilon);
    std::vector<double> y;
    for (const double v : x) y.push_back(half(v / root));
    return y;
  }
  // Undoes the order of the packed rows, adds the bias and rotates.
  void place(const double* raw, int head_index, int position, double* out) const {
    const int d = m.head_dim;
    const bool is_value = head_index >= m.heads + m.kv_heads;
    for (int i = 0; i < d / 2; ++i) {
      const int tile = is_value ? i / 8 : i / 8;
      const int low = head_index * d + tile * 16 + i % 8;
      double a = raw[low] + 0.01F;
      double b = raw[low + 8] + 0.01F;
      const int first = is_value ? tile * 16 + i % 8 : i;
      const int second = is_value ? first + 8 : i + d / 2;
      if (!is_value) {
        const double angle = position * std::pow(10000.0, -2.0 * i / d);
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned;
      }
      out[head_index * d + first] = half(a);
      out[head_index * d + second] = half(b);
    }
  }

  std::vector<std::vector<double>> keys;
  std::vector<std::vector<double>> values;
};

void check() {
  const Model small{"small", 2, 448, 14, 2, 64, 640, 1024};
  HostModel host(small, 42);
  std::vector<Array<std::uint8_t>> kept;
  const auto upload = [&](const HostMatrix& m) {
    kept.emplace_back(m.packed);
    return kept.back().data();
  };
  std::vector<Layer> layers;
  for (const auto& w : host.layers) {
    const std::uint8_t* qkv = upload(w[0]);
    const std::uint8_t* out = upload(w[1]);
    const std::uint8_t* gate_up = upload(w[2]);
    layers.push_back({qkv, out, gate_up, upload(w[3])});
  }
  const std::uint8_t* head = upload(host.head);
  const Array<__half> table(host.table);
  Engine<64> one(small, 1, 64);
  Engine<64> five(small, 5, 64);
  five.own_norm = true;
  double worst = 0;
  int differ = 0;
  int token = 0;
  for (int position = 0; position < 20; ++position) {
    one.enqueue(layers, head, table.data(), nullptr);
    five.enqueue(layers, head, table.data(), nullptr);
    LAB_CHECK(cudaDeviceSynchronize());
    token = one.tokens()[0];
    const std::vector<double> expected = host.step(token, position);
    const std::vector<float> found = one.logits();
    const std::vector<float> among = five.logits();
    double top = 0;
    double error = 0;
    for (int i = 0; i < small.vocab; ++i) {
      top = std::max(top, std::abs(expected[i]));
      error = std::max(error, std::abs(expected[i] - found[i]));
      differ += std::memcmp(&found[i], &among[i], 4) != 0 ? 1 : 0;
    }
    worst = std::isfinite(error) ? std::max(worst, error / top) : 1e9;
  }
  std::printf(
      "step %-5s small model, 20 tokens: error %.1e; one row against five: %d logits differ  %s\n",
      Format::kName, worst, differ, worst < 5e-3 && differ == 0 ? "ok" : "WRONG");
}

template <int Dim>
void time_model(const Model& m) {
  const auto bytes_of = [](int outputs, int inputs) {
    return static_cast<std::size_t>(outputs / 16) * (inputs / 64) * Format::kBytes;
  };
  const std::size_t layer_bytes = bytes_of(m.qkv(), m.hidden) + bytes_of(m.hidden, m.heads * Dim) +
                                  bytes_of(2 * m.ffn, m.hidden) + bytes_of(m.hidden, m.ffn);
  const std::size_t head_bytes = bytes_of(m.vocab, m.hidden);
  Array<std::uint8_t> weights(layer_bytes * m.layers + head_bytes);
  scramble(weights.data(), weights.bytes(), 21);
  Array<__half> table(static_cast<std::size_t>(m.vocab) * m.hidden);
  scramble(table.data(), table.bytes(), 22);
  std::vector<Layer> layers;
  const std::uint8_t* at = weights.data();
  const auto take = [&](std::size_t bytes) {
    const std::uint8_t* here = at;
    at += bytes;
    return here;
  };
  for (int i = 0; i < m.layers; ++i) {
    const std::uint8_t* qkv = take(bytes_of(m.qkv(), m.hidden));
    const std::uint8_t* out = take(bytes_of(m.hidden, m.heads * Dim));
    const std::uint8_t* gate_up = take(bytes_of(2 * m.ffn, m.hidden));
    layers.push_back({qkv, out, gate_up, take(bytes_of(m.hidden, m.ffn))});
  }
  for (const int rows : {1, 8, 16}) {
    for (int variant = 0; variant < (rows == 1 ? 3 : 1); ++variant) {
      Engine<Dim> engine(m, rows, 512);
      engine.dependent = variant != 2;
      engine.own_norm = variant == 1 || rows > 4;
      engine.begin_at(128);
      const double seconds = time_graph(
          [&](cudaStream_t stream) { engine.enqueue(layers, at, table.data(), stream); }, 125);
      const double bytes = static_cast<double>(weights.bytes());
      std::printf(
          "STEP %-5s %-12s rows %2d, context 128..256%s%s: %.3f ms, %.0f tokens/s, %.1f %% of "
          "the "
          "copy limit\n",
          Format::kName, m.name, rows, engine.own_norm ? ", own norm kernels" : "",
          engine.dependent ? "" : ", no programmatic edges", seconds * 1e3, rows / seconds,
          bytes / seconds / kCopyLimit * 100);
    }
  }
}

}  // namespace
}  // namespace lab

// With any argument: only the check.
int main(int argc, char**) {
  lab::check();
  if (argc > 1) return 0;
  for (const lab::Model& m : lab::models()) {
    if (m.head_dim == 64) {
      lab::time_model<64>(m);
    } else {
      lab::time_model<128>(m);
    }
  }
  return 0;
}
