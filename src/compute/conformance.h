// The fixture of the conformance tests: one op on the backend under test and on the reference, and
// how far they may be apart.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "compute/dequantize.h"
#include "compute/test_backends.h"
#include "compute/test_tensors.h"

namespace llorch::compute::test {

// How far a result may be from the reference, relative to the largest magnitude in its row. Zero is
// bit for bit.
struct Tolerance {
  double embed = 0;
  double layer_norm = 2e-6;
  double rms_norm = 1e-6;
  double linear = 1e-6;
  double activation = 2e-6;
  double rope_angles = 2e-7;
  double rope = 1e-6;
  double attention = 5e-6;
  double gather_rows = 0;
  double softcap = 2e-6;
  double softmax = 2e-6;
};
inline constexpr Tolerance kTolerance;

inline constexpr StepLimits kLimits = {.rows = 64, .inputs = 2048, .context = 512};

inline std::vector<DType> decodable_types() {
  std::vector<DType> types;
  for (const tensor::DTypeInfo& type : tensor::all_dtypes()) {
    if (can_dequantize(type.dtype)) types.push_back(type.dtype);
  }
  return types;
}

// Runs something on a backend and returns what came out.
using Op = std::function<std::vector<float>(Device&)>;

class Conformance : public WithBackend {
 protected:
  Conformance() : WithBackend(kLimits) {}

  std::vector<float> run(const Op& op) {
    Device device(*backend_);
    return op(device);
  }

  void expect_close(double tolerance, std::int64_t row_elems, const std::string& what, const Op& op,
                    double floor = 1e-30) {
    SCOPED_TRACE(what);
    Device reference(*reference_);
    const std::vector<float> expected = op(reference);
    const std::vector<float> found = run(op);
    ASSERT_EQ(found.size(), expected.size());
    if (tolerance == 0) return expect_same_bits(found, expected, what);
    for (std::size_t i = 0; i < found.size(); ++i) {
      const std::size_t row = i - i % static_cast<std::size_t>(row_elems);
      double largest = floor;
      for (std::size_t j = row; j < row + static_cast<std::size_t>(row_elems); ++j) {
        if (std::isfinite(expected[j]))
          largest = std::max(largest, std::abs(static_cast<double>(expected[j])));
      }
      if (std::isinf(expected[i])) {
        ASSERT_EQ(found[i], expected[i]) << "value " << i;
        continue;
      }
      const double error =
          std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
      ASSERT_LE(error, tolerance * largest)
          << "value " << i << ": " << found[i] << ", expected " << expected[i];
    }
  }
};

}  // namespace llorch::compute::test
