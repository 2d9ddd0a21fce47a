// One weight format (LAB_FORMAT) in every shape: the bits of a row against rows of other steps, the
// error against sums in double, and the time.
#include "narrow.cuh"
#include "shapes.h"
#include "wide.cuh"

#ifndef LAB_FORMAT
#define LAB_FORMAT Plain<F16>
#endif

namespace lab {
namespace {

using Format = LAB_FORMAT;
using Usual = Spread<8, Format::kRing, 3>;

std::vector<__half> round_rows(const std::vector<float>& x) {
  std::vector<__half> out;
  for (const float v : x) {
    if constexpr (std::is_same_v<Format::Type, F16>) {
      out.push_back(__float2half_rn(v));
    } else {
      const __nv_bfloat16 rounded = __float2bfloat16_rn(v);
      __half word;
      std::memcpy(&word, &rounded, 2);
      out.push_back(word);
    }
  }
  return out;
}
float value_of(__half word) {
  if constexpr (std::is_same_v<Format::Type, F16>) return __half2float(word);
  __nv_bfloat16 rounded;
  std::memcpy(&rounded, &word, 2);
  return __bfloat162float(rounded);
}

template <class Shape>
std::vector<float> by_narrow(const Array<std::uint8_t>& weight, int outputs, int inputs,
                             const std::vector<__half>& x, int first, int rows) {
  const Array<__half> dx(
      std::vector<__half>(x.begin() + first * inputs, x.begin() + (first + rows) * inputs));
  Array<float> out(static_cast<std::size_t>(rows) * outputs);
  out.poison();
  narrow<Format, Shape>(Narrow{weight.data(), outputs / 16, inputs / 64, rows},
                        Rounded{dx.data(), inputs}, Store{out.data(), outputs, nullptr, false},
                        nullptr, false);
  LAB_CHECK(cudaDeviceSynchronize());
  return out.host();
}

template <int N, int Groups, int Cluster>
std::vector<float> by_wide(const Array<std::uint8_t>& weight, int outputs, int inputs,
                           const std::vector<__half>& x, int first, int rows) {
  const Array<__half> dx(
      std::vector<__half>(x.begin() + first * inputs, x.begin() + (first + rows) * inputs));
  const int blocks = (rows + N - 1) / N;
  Array<__half> placed(static_cast<std::size_t>(blocks) * N * inputs);
  place_rows<N><<<dim3(inputs / 64, blocks), 256>>>(dx.data(), rows, inputs, placed.data());
  Array<float> out(static_cast<std::size_t>(rows) * outputs);
  out.poison();
  wide<Format, N, Groups, Cluster>(
      Wide{weight.data(), outputs / 16, inputs / 64, placed.data(), rows, out.data(), outputs},
      nullptr);
  LAB_CHECK(cudaDeviceSynchronize());
  return out.host();
}

int differing(const std::vector<float>& all, int first, const std::vector<float>& part,
              int outputs) {
  int count = 0;
  for (std::size_t i = 0; i < part.size(); ++i)
    count += std::memcmp(&all[static_cast<std::size_t>(first) * outputs + i], &part[i], 4) != 0;
  return count;
}

void check(int outputs, int inputs) {
  constexpr int kRows = 512;
  const HostMatrix matrix = random_matrix<Format>(outputs, inputs, outputs + inputs);
  const Array<std::uint8_t> weight(matrix.packed);
  Random random(77);
  std::vector<float> values(static_cast<std::size_t>(kRows) * inputs);
  for (float& v : values) v = random.normal();
  const std::vector<__half> x = round_rows(values);
  const std::vector<float> all = by_wide<128, 2, 2>(weight, outputs, inputs, x, 0, kRows);
  double worst = 0;
  for (int row = 0; row < 24; ++row) {
    double largest = 0;
    double error = 0;
    for (int o = 0; o < outputs; ++o) {
      double sum = 0;
      for (int k = 0; k < inputs; ++k)
        sum += static_cast<double>(value_of(x[row * inputs + k])) *
               static_cast<double>(matrix.values[static_cast<std::size_t>(o) * inputs + k]);
      largest = std::max(largest, std::abs(sum));
      error = std::max(error, std::abs(sum - all[static_cast<std::size_t>(row) * outputs + o]));
    }
    worst = std::isfinite(error) ? std::max(worst, error / largest) : 1e9;
  }
  int narrow_differs = 0;
  for (int row = 0; row < 40; ++row)
    narrow_differs +=
        differing(all, row, by_narrow<Usual>(weight, outputs, inputs, x, row, 1), outputs);
  for (int rows = 2; rows <= 16; ++rows)
    narrow_differs +=
        differing(all, rows, by_narrow<Usual>(weight, outputs, inputs, x, rows, rows), outputs);
  for (int row = 40; row < 50; ++row) {
    narrow_differs += differing(
        all, row, by_narrow<Spread<16, 4, 1>>(weight, outputs, inputs, x, row, 1), outputs);
    narrow_differs += differing(
        all, row, by_narrow<Spread<8, 1, 5>>(weight, outputs, inputs, x, row, 1), outputs);
  }
  int wide_differs = 0;
  for (const int rows : {1, 17, 63, 64, 65, 129})
    wide_differs +=
        differing(all, 5, by_wide<64, 1, 1>(weight, outputs, inputs, x, 5, rows), outputs);
  wide_differs += differing(all, 0, by_wide<64, 2, 4>(weight, outputs, inputs, x, 0, 64), outputs);
  wide_differs +=
      differing(all, 300, by_wide<32, 1, 1>(weight, outputs, inputs, x, 300, 40), outputs);
  const bool good = worst < 1e-6 && narrow_differs + wide_differs == 0;
  std::printf(
      "%-5s %6d x %5d: error %.1e; bits that differ from 512 rows: narrow %d, wide %d  %s\n",
      Format::kName, outputs, inputs, worst, narrow_differs, wide_differs, good ? "ok" : "WRONG");
}

struct Cost {
  double micros;
  double bytes;
  double operations;
};

void row_of_table(const char* model, const Product& p, const char* kernel, int rows, Cost cost) {
  std::printf(
      "%-5s %-12s %-8s %6d x %5d %-12s rows %3d: %8.2f us %6.0f GB/s %5.1f %% %6.1f TFLOP/s\n",
      Format::kName, model, p.name, p.outputs, p.inputs, kernel, rows, cost.micros,
      cost.bytes / cost.micros * 1e-3, cost.bytes / cost.micros * 1e6 / kCopyLimit * 100,
      cost.operations / cost.micros * 1e-6);
}

void time_model(const Model& model) {
  const std::vector<int> all_rows = {1, 8, 16, 64, 512};
  std::vector<double> step(all_rows.size());
  std::vector<double> chosen(all_rows.size());  // by narrow_chosen
  for (const Product& p : products_of(model)) {
    const std::size_t bytes =
        static_cast<std::size_t>(p.outputs / 16) * (p.inputs / 64) * Format::kBytes;
    const int copies = static_cast<int>(std::max<std::size_t>(3, 400000000 / bytes + 1));
    Array<std::uint8_t> weights(bytes * copies);
    scramble(weights.data(), weights.bytes(), 5);
    Array<__half> x(static_cast<std::size_t>(512) * p.inputs);
    scramble(x.data(), x.bytes(), 9);
    Array<float> out(static_cast<std::size_t>(512) * p.outputs);
    LAB_CHECK(cudaDeviceSynchronize());
    for (std::size_t i = 0; i < all_rows.size(); ++i) {
      const int rows = all_rows[i];
      const auto measure = [&](const char* kernel, const auto& enqueue) {
        const int used = rows > 64 ? std::min(copies, 8) : copies;
        const double seconds = time_graph(
            [&](cudaStream_t stream) {
              for (int c = 0; c < used; ++c) enqueue(weights.data() + c * bytes, stream);
            },
            rows > 64 ? 8 : 15);
        const double micros = seconds / used * 1e6;
        row_of_table(model.name, p, kernel, rows,
                     {micros, static_cast<double>(bytes), 2.0 * rows * p.outputs * p.inputs});
        return micros;
      };
      const auto wide_of = [&](const std::uint8_t* w) {
        return Wide{w, p.outputs / 16, p.inputs / 64, x.data(), rows, out.data(), p.outputs};
      };
      double best = 1e9;
      const auto try_narrow = [&]<class Shape>(const char* name, Shape) {
        best = std::min(best, measure(name, [&](const std::uint8_t* w, cudaStream_t stream) {
                          narrow<Format, Shape>(Narrow{w, p.outputs / 16, p.inputs / 64, rows},
                                                Rounded{x.data(), p.inputs},
                                                Store{out.data(), p.outputs, nullptr, false},
                                                stream, true);
                        }));
      };
      const auto try_wide = [&]<int N, int Groups, int Cluster>(const char* name) {
        best = std::min(best, measure(name, [&](const std::uint8_t* w, cudaStream_t stream) {
                          wide<Format, N, Groups, Cluster>(wide_of(w), stream);
                        }));
      };
      if (rows <= 16) {
        best = std::min(best, measure("chosen", [&](const std::uint8_t* w, cudaStream_t stream) {
                          narrow_chosen<Format>(Narrow{w, p.outputs / 16, p.inputs / 64, rows},
                                                Rounded{x.data(), p.inputs},
                                                Store{out.data(), p.outputs, nullptr, false},
                                                stream, true);
                        }));
        chosen[i] += best * p.times;
        try_narrow("narrow", Usual{});
        try_narrow("narrow 8,4,2", Spread<8, 4, 2>{});
        try_narrow("narrow 16,2,1", Spread<16, 2, 1>{});
        if (rows == 1) {
          try_narrow("narrow 16,2,2", Spread<16, 2, 2>{});
          try_narrow("narrow 8,2,4", Spread<8, 2, 4>{});
          try_narrow("narrow 8,1,5", Spread<8, 1, 5>{});
        }
      } else {
        try_wide.template operator()<64, 1, 1>("wide 64x1");
        try_wide.template operator()<64, 2, 1>("wide 64x2");
        if (rows > 64) {
          try_wide.template operator()<128, 2, 1>("wide 128x2");
          try_wide.template operator()<128, 2, 2>("wide 128x2 c2");
          try_wide.template operator()<128, 1, 1>("wide 128x1");
        }
      }
      step[i] += best * p.times;
    }
  }
  for (std::size_t i = 0; i < all_rows.size(); ++i)
    std::printf(
        "SUM %-5s %-12s rows %3d: products of a step %.3f ms, %.0f rows/s; as chosen %.3f ms\n",
        Format::kName, model.name, all_rows[i], step[i] * 1e-3, all_rows[i] / step[i] * 1e6,
        chosen[i] * 1e-3);
}

// A few plain launches of one shape, for a profiler.
void profile() {
  const Product p = products_of(models()[2])[2];
  const std::size_t bytes =
      static_cast<std::size_t>(p.outputs / 16) * (p.inputs / 64) * Format::kBytes;
  Array<std::uint8_t> weights(bytes);
  Array<__half> x(static_cast<std::size_t>(512) * p.inputs);
  Array<float> out(static_cast<std::size_t>(512) * p.outputs);
  scramble(weights.data(), weights.bytes(), 5);
  scramble(x.data(), x.bytes(), 9);
  narrow<Format, Usual>(Narrow{weights.data(), p.outputs / 16, p.inputs / 64, 1},
                        Rounded{x.data(), p.inputs}, Store{out.data(), p.outputs, nullptr, false},
                        nullptr, false);
  wide<Format, 128, 2, 2>(
      Wide{weights.data(), p.outputs / 16, p.inputs / 64, x.data(), 512, out.data(), p.outputs},
      nullptr);
  LAB_CHECK(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace lab

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "profile") == 0) {
    lab::profile();
    return 0;
  }
  lab::check(256, 896);
  lab::check(192, 4864);
  lab::check(64, 14336);
  if (argc > 1) return 0;
  for (const lab::Model& model : lab::models()) lab::time_model(model);
  return 0;
}
