// Attention of three models: decode against prefill bit for bit at every position, both against
// double, and the time of both.
#include "decode_attention.cuh"
#include "prefill_attention.cuh"
#include "shapes.h"

namespace lab {
namespace {

struct Filled {
  std::vector<__half> keys;
  std::vector<__half> values;
  std::vector<int> pages;
  Array<__half> device_keys;
  Array<__half> device_values;
  Array<int> device_pages;
};

std::vector<__half> random_halves(std::size_t size, std::uint64_t seed, float scale) {
  Random random(seed);
  std::vector<__half> out(size);
  for (auto& v : out) v = __float2half_rn(random.normal() * scale);
  return out;
}

// Pages of several sequences, shuffled.
Filled fill(const Model& m, int sequences, int pages_max) {
  Filled f;
  const std::size_t size =
      static_cast<std::size_t>(sequences) * pages_max * m.kv_heads * kPageTokens * m.head_dim;
  f.keys = random_halves(size, 11, 1.0F);
  f.values = random_halves(size, 12, 1.0F);
  for (int i = 0; i < sequences * pages_max; ++i)
    f.pages.push_back(
        static_cast<int>((static_cast<std::int64_t>(i) * 7919) % (sequences * pages_max)));
  f.device_keys = Array<__half>(f.keys);
  f.device_values = Array<__half>(f.values);
  f.device_pages = Array<int>(f.pages);
  return f;
}

template <int Dim>
void check(const Model& m) {
  constexpr int kContext = 700;
  constexpr int kPages = 64;
  const Filled f = fill(m, 2, kPages);
  const int group = m.heads / m.kv_heads;
  const std::size_t row_size = static_cast<std::size_t>(m.heads) * Dim;
  const std::vector<__half> q = random_halves(kContext * row_size, 13, 1.5F);
  const Array<__half> dq(q);
  std::vector<int> positions(kContext);
  for (int i = 0; i < kContext; ++i) positions[i] = i;
  const Array<int> dpositions(positions);
  const Array<int> dsequences(std::vector<int>(kContext, 1));
  Array<__half> out(kContext * row_size);
  Array<float> exact(kContext * row_size);
  Attend args{
      dq.data(),
      out.data(),
      exact.data(),
      {f.device_keys.data(), f.device_values.data(), f.device_pages.data(), kPages, m.kv_heads},
      dpositions.data(),
      dsequences.data(),
      group,
      1.4426950408889634F / std::sqrt(static_cast<float>(Dim))};
  exact.poison();
  out.poison();
  run_prefill<Dim>(args, {0, kContext, 0, 1}, nullptr);
  LAB_CHECK(cudaDeviceSynchronize());
  const std::vector<float> all = exact.host();

  // In chunks, and one by one as decode does it: the whole batch at once and alone.
  int chunks_differ = 0;
  exact.poison();
  for (int at = 0, size = 1; at < kContext; at += size, size = size * 3 + 4) {
    const int rows = std::min(size, kContext - at);
    run_prefill<Dim>(args, {at, rows, at, 1}, nullptr);
  }
  LAB_CHECK(cudaDeviceSynchronize());
  const auto differing = [&](const std::vector<float>& found, std::size_t first,
                             std::size_t count) {
    int n = 0;
    for (std::size_t i = first; i < first + count; ++i)
      n += std::memcmp(&all[i], &found[i], 4) != 0 ? 1 : 0;
    return n;
  };
  chunks_differ = differing(exact.host(), 0, all.size());
  constexpr int kSplits = kPages * kPageTokens / kSplitKeys;
  Array<float> parts(static_cast<std::size_t>(kContext) * m.heads * kSplits * (Dim + 2));
  Array<int> tickets(std::vector<int>(static_cast<std::size_t>(kContext) * m.kv_heads, 0));
  const Workspace work{parts.data(), tickets.data(), kSplits};
  exact.poison();
  run_decode<Dim>(args, work, kContext, nullptr, false);
  LAB_CHECK(cudaDeviceSynchronize());
  const std::vector<float> decoded = exact.host();
  int decode_differs = differing(decoded, 0, all.size());
  // One row alone, at the positions where tiles and splits begin and end.
  int alone_differs = 0;
  for (const int row : {0, 1, 62, 63, 64, 65, 254, 255, 256, 257, 511, 512, 513, 699}) {
    exact.poison();
    Attend one = args;
    one.q += row * row_size;
    one.exact += row * row_size;
    one.out += row * row_size;
    one.positions += row;
    run_decode<Dim>(one, work, 1, nullptr, false);
    LAB_CHECK(cudaDeviceSynchronize());
    alone_differs += differing(exact.host(), row * row_size, row_size);
  }

  double worst = 0;
  for (int row = 0; row < kContext; row += 13) {
    for (int h = 0; h < m.heads; ++h) {
      std::vector<double> p(row + 1);
      double largest = -1e30;
      const auto at = [&](int key) {
        const std::int64_t page = f.pages[kPages + key / kPageTokens];
        return ((page * m.kv_heads + h / group) * kPageTokens + key % kPageTokens) * Dim;
      };
      for (int key = 0; key <= row; ++key) {
        double s = 0;
        for (int d = 0; d < Dim; ++d)
          s += static_cast<double>(__half2float(q[row * row_size + h * Dim + d])) *
               static_cast<double>(__half2float(f.keys[at(key) + d]));
        p[key] = s / std::sqrt(static_cast<double>(Dim));
        largest = std::max(largest, p[key]);
      }
      double sum = 0;
      for (double& v : p) sum += v = std::exp(v - largest);
      double top = 0;
      double error = 0;
      for (int d = 0; d < Dim; ++d) {
        double value = 0;
        for (int key = 0; key <= row; ++key)
          value += p[key] * static_cast<double>(__half2float(f.values[at(key) + d]));
        value /= sum;
        top = std::max(top, std::abs(value));
        error = std::max(error, std::abs(value - all[row * row_size + h * Dim + d]));
      }
      worst = std::isfinite(error) ? std::max(worst, error / top) : 1e9;
    }
  }
  const bool good = worst < 5e-4 && chunks_differ + decode_differs + alone_differs == 0;
  std::printf(
      "attention %-12s: error %.1e; of %zu bits patterns differ: chunks %d, decode %d, alone %d  "
      "%s\n",
      m.name, worst, all.size(), chunks_differ, decode_differs, alone_differs,
      good ? "ok" : "WRONG");
}

template <int Dim>
void time_decode(const Model& m, int rows, int context) {
  const int pages = (context + kPageTokens - 1) / kPageTokens;
  const int group = m.heads / m.kv_heads;
  const std::size_t cache_size =
      static_cast<std::size_t>(rows) * pages * m.kv_heads * kPageTokens * Dim;
  const int copies = static_cast<int>(std::max<std::size_t>(4, 200000000 / (cache_size * 4)));
  Array<__half> keys(cache_size * copies);
  Array<__half> values(cache_size * copies);
  scramble(keys.data(), keys.bytes(), 1);
  scramble(values.data(), values.bytes(), 2);
  std::vector<int> table(static_cast<std::size_t>(rows) * pages);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int>(i);
  std::vector<int> sequences(rows);
  for (int i = 0; i < rows; ++i) sequences[i] = i;
  const Array<int> dtable(table);
  const Array<int> dsequences(sequences);
  const Array<int> dpositions(std::vector<int>(rows, context - 1));
  Array<__half> q(static_cast<std::size_t>(rows) * m.heads * Dim);
  Array<__half> out(q.size());
  scramble(q.data(), q.bytes(), 3);
  const int splits = (context + kSplitKeys - 1) / kSplitKeys;
  Array<float> parts(static_cast<std::size_t>(rows) * m.heads * splits * (Dim + 2));
  Array<int> tickets(std::vector<int>(static_cast<std::size_t>(rows) * m.kv_heads, 0));
  const int used = std::min(copies, 64);
  const double seconds = time_graph([&](cudaStream_t stream) {
    for (int i = 0; i < used; ++i) {
      const Attend args{q.data(),
                        out.data(),
                        nullptr,
                        {keys.data() + i * cache_size, values.data() + i * cache_size,
                         dtable.data(), pages, m.kv_heads},
                        dpositions.data(),
                        dsequences.data(),
                        group,
                        0.1F};
      run_decode<Dim>(args, Workspace{parts.data(), tickets.data(), splits}, rows, stream, true);
    }
  });
  const double micros = seconds / used * 1e6;
  const double bytes = static_cast<double>(rows) * context * m.kv_heads * Dim * 4;
  std::printf("attention %-12s decode rows %2d context %5d: %7.2f us %6.0f GB/s %5.1f %%\n", m.name,
              rows, context, micros, bytes / micros * 1e-3,
              bytes / micros * 1e6 / kCopyLimit * 100);
}

template <int Dim>
void time_prefill(const Model& m, int rows) {
  const int pages = rows / kPageTokens;
  const std::size_t cache_size = static_cast<std::size_t>(rows) * m.kv_heads * Dim;
  Array<__half> keys(cache_size);
  Array<__half> values(cache_size);
  Array<__half> q(static_cast<std::size_t>(rows) * m.heads * Dim);
  Array<__half> out(q.size());
  scramble(keys.data(), keys.bytes(), 1);
  scramble(values.data(), values.bytes(), 2);
  scramble(q.data(), q.bytes(), 3);
  std::vector<int> table(pages);
  for (int i = 0; i < pages; ++i) table[i] = i;
  const Array<int> dtable(table);
  const Attend args{q.data(),
                    out.data(),
                    nullptr,
                    {keys.data(), values.data(), dtable.data(), pages, m.kv_heads},
                    nullptr,
                    nullptr,
                    m.heads / m.kv_heads,
                    0.1F};
  const double seconds = time_graph([&](cudaStream_t stream) {
    for (int i = 0; i < 8; ++i) run_prefill<Dim>(args, {0, rows, 0, 0}, stream);
  });
  const double micros = seconds / 8 * 1e6;
  const double operations = 2.0 * rows * rows * m.heads * Dim;  // the causal half of both products
  std::printf("attention %-12s prefill rows %5d: %8.2f us %6.1f TFLOP/s\n", m.name, rows, micros,
              operations / micros * 1e-6);
}

template <int Dim>
void all(const Model& m, bool only_check) {
  check<Dim>(m);
  if (only_check) return;
  for (const int rows : {1, 16, 64})
    for (const int context : {192, 512, 4096}) time_decode<Dim>(m, rows, context);
  time_decode<Dim>(m, 1, 16384);
  for (const int rows : {512, 2048, 4096}) time_prefill<Dim>(m, rows);
}

}  // namespace
}  // namespace lab

// With any argument: only the checks.
int main(int argc, char**) {
  for (const lab::Model& m : lab::models()) {
    if (m.head_dim == 64) {
      lab::all<64>(m, argc > 1);
    } else {
      lab::all<128>(m, argc > 1);
    }
  }
  return 0;
}
