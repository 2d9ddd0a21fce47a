#include "tools/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/job_border.h"
#include "base/terminal.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "compute/dequantize.h"
#include "compute/quantize.h"
#include "formats/gguf_writer.h"
#include "model/tensor_names.h"

namespace llorch::tools {
namespace {

using formats::GgufTensor;
using tensor::DType;

constexpr std::int64_t kValuesPerPiece = std::int64_t{1} << 20;  // of one thread

std::size_t bytes_of(DType dtype, std::int64_t values) {
  return static_cast<std::size_t>(tensor::storage_bytes(dtype, values).value());
}

// Rows of one tensor as the new file has them, in float32.
class RowSource {
 public:
  explicit RowSource(const PlannedTensor& tensor) : tensor_(tensor) {
    const int rank = tensor.shape.rank();
    columns_ = rank == 0 ? 1 : tensor.shape[rank - 1];
    rows_ = columns_ == 0 ? 0 : tensor.shape.elements() / columns_;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }

  // What must be in memory as a whole: views with strides, and matrices that are turned.
  Status prepare() {
    if (tensor_.source == nullptr) return ok_status();
    bytes_ = tensor_.source->bytes;
    if (!tensor_.source->strides.empty()) {
      gathered_ = formats::gather_contiguous(*tensor_.source);
      bytes_ = gathered_;
    }
    if (!tensor_.transposed) return ok_status();
    std::vector<float> stored(static_cast<std::size_t>(rows_ * columns_));
    Status decoded = compute::dequantize(tensor_.source->dtype, bytes_, stored);
    if (!decoded.ok()) return decoded;
    turned_.resize(stored.size());
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t column = 0; column < columns_; ++column) {
        turned_[static_cast<std::size_t>(row * columns_ + column)] =
            stored[static_cast<std::size_t>(column * rows_ + row)];
      }
    }
    return ok_status();
  }

  Status read(std::int64_t row, std::span<float> out) const {
    if (tensor_.source == nullptr || tensor_.transposed) {
      const std::vector<float>& values = tensor_.source == nullptr ? tensor_.made : turned_;
      std::copy_n(values.begin() + row * columns_, columns_, out.begin());
      return ok_status();
    }
    const std::size_t row_bytes = bytes_of(tensor_.source->dtype, columns_);
    const std::int64_t from = source_row(row);
    Status decoded = compute::dequantize(
        tensor_.source->dtype,
        bytes_.subspan(static_cast<std::size_t>(from) * row_bytes, row_bytes), out);
    if (!decoded.ok()) return decoded;
    if (tensor_.plus_one) {
      for (float& value : out) value += 1.0F;
    }
    return ok_status();
  }

  // The stored bytes, where they can be taken as they are.
  std::optional<std::span<const std::byte>> verbatim() const {
    const bool is_same = tensor_.source != nullptr && tensor_.source->dtype == tensor_.dtype &&
                         tensor::is_block_type(tensor_.dtype) && !tensor_.transposed &&
                         tensor_.paired_head_dim == 0 && !tensor_.plus_one;
    return is_same ? std::optional(bytes_) : std::nullopt;
  }

 private:
  // Rows of a vector are its values: a bias is reordered by single values.
  std::int64_t source_row(std::int64_t row) const {
    const std::int64_t head_dim = tensor_.paired_head_dim;
    if (head_dim == 0) return row;
    return row / head_dim * head_dim + model::paired_row(row % head_dim, head_dim);
  }

  const PlannedTensor& tensor_;
  std::int64_t rows_ = 0, columns_ = 0;
  std::span<const std::byte> bytes_;
  std::vector<std::byte> gathered_;
  std::vector<float> turned_;
};

// A bias of Q or K is reordered value by value: for the rest of the code it is a column of rows of
// one value.
PlannedTensor as_column(PlannedTensor tensor) {
  if (tensor.shape.rank() == 1 && tensor.paired_head_dim > 0) tensor.shape = {tensor.shape[0], 1};
  return tensor;
}

Status encode_rows(const RowSource& source, DType dtype, std::int64_t begin, std::int64_t end,
                   std::byte* to) {
  std::vector<float> values(static_cast<std::size_t>(source.columns()));
  const std::size_t row_bytes = bytes_of(dtype, source.columns());
  for (std::int64_t row = begin; row < end; ++row, to += row_bytes) {
    if (Status read = source.read(row, values); !read.ok()) return read;
    Status encoded = compute::quantize(dtype, values, {to, row_bytes});
    if (!encoded.ok()) return encoded.error().in(fmt::format("row {}", row));
  }
  return ok_status();
}

// Rows [begin, end) into `out`, shared out between threads.
Status encode_piece(const RowSource& source, DType dtype, std::int64_t begin, std::int64_t end,
                    int threads, std::vector<std::byte>& out) {
  const std::size_t row_bytes = bytes_of(dtype, source.columns());
  out.resize(static_cast<std::size_t>(end - begin) * row_bytes);
  const std::int64_t count = std::min<std::int64_t>(threads, end - begin);
  std::vector<Status> results(static_cast<std::size_t>(count), ok_status());
  const auto work = [&](std::int64_t part) {
    const std::int64_t first = begin + (end - begin) * part / count;
    const std::int64_t last = begin + (end - begin) * (part + 1) / count;
    std::byte* rows = out.data() + static_cast<std::size_t>(first - begin) * row_bytes;
    results[static_cast<std::size_t>(part)] = base::run_job<std::monostate>(
        "while encoding", [&] { return encode_rows(source, dtype, first, last, rows); });
  };
  {
    std::vector<std::jthread> workers;
    for (std::int64_t part = 1; part < count; ++part)
      workers.push_back(base::start_thread("convert", [&work, part] { work(part); }));
    work(0);
  }
  for (Status& result : results) {
    if (!result.ok()) return std::move(result);
  }
  return ok_status();
}

struct Run {
  int threads = 1;
  std::int64_t done = 0;
  std::int64_t all = 0;
  const ConvertProgress& progress;
};

Status produce(const PlannedTensor& planned, Run& run, const GgufTensor::Sink& sink) {
  const PlannedTensor tensor = as_column(planned);
  RowSource source(tensor);
  if (Status prepared = source.prepare(); !prepared.ok()) return prepared;
  const auto report = [&](std::int64_t rows) {
    run.done += rows * source.columns();
    if (run.progress) run.progress(run.done, run.all, tensor.name);
  };
  if (const auto bytes = source.verbatim()) {
    if (Status written = sink(*bytes); !written.ok()) return written;
    report(source.rows());
    return ok_status();
  }
  const std::int64_t step =
      std::max<std::int64_t>(1, kValuesPerPiece / std::max<std::int64_t>(1, source.columns())) *
      run.threads;
  std::vector<std::byte> piece;
  for (std::int64_t row = 0; row < source.rows(); row += step) {
    const std::int64_t end = std::min(source.rows(), row + step);
    Status encoded = encode_piece(source, tensor.dtype, row, end, run.threads, piece);
    if (!encoded.ok()) return encoded;
    if (Status written = sink(piece); !written.ok()) return written;
    report(end - row);
  }
  return ok_status();
}

std::int64_t stored_bytes(const PlannedTensor& tensor) {
  return static_cast<std::int64_t>(bytes_of(tensor.dtype, tensor.shape.elements()));
}

struct TypeRow {
  std::int64_t tensors = 0, values = 0, bytes = 0;
};

// By type, the largest share first.
std::vector<std::pair<DType, TypeRow>> rows_by_type(const ConversionPlan& plan) {
  std::map<DType, TypeRow> rows;
  for (const PlannedTensor& tensor : plan.tensors) {
    TypeRow& row = rows[tensor.dtype];
    ++row.tensors;
    row.values += tensor.shape.elements();
    row.bytes += stored_bytes(tensor);
  }
  std::vector<std::pair<DType, TypeRow>> sorted(rows.begin(), rows.end());
  std::ranges::stable_sort(
      sorted, [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  return sorted;
}

}  // namespace

Status write_conversion(const ConversionPlan& plan, const std::filesystem::path& output,
                        int threads, const ConvertProgress& progress) {
  Run run{.threads = std::max(1, threads), .all = summarize(plan).num_values, .progress = progress};
  formats::GgufWriter writer;
  const formats::Metadata& metadata = plan.target->metadata();
  for (const auto& [key, value] : metadata.entries())
    writer.add_value(key, value, metadata.stored_type(key));
  for (const PlannedTensor& tensor : plan.tensors) {
    GgufTensor written;
    written.name = tensor.name;
    written.dtype = tensor.dtype;
    written.shape = tensor.shape;
    written.produce = [&tensor, &run](const GgufTensor::Sink& sink) -> Status {
      Status produced = produce(tensor, run, sink);
      if (produced.ok()) return produced;
      return produced.error().in(fmt::format("tensor {}", base::quoted(tensor.name)));
    };
    writer.add_tensor(std::move(written));
  }
  return writer.write(output);
}

ConvertSummary summarize(const ConversionPlan& plan) {
  ConvertSummary summary;
  for (const PlannedTensor& tensor : plan.tensors) {
    ++summary.num_tensors;
    summary.num_values += tensor.shape.elements();
    summary.bytes_after += stored_bytes(tensor);
  }
  for (const formats::WeightTensor& tensor : plan.source->tensors()) {
    const auto bytes = tensor::storage_bytes(tensor.dtype, tensor.shape.elements());
    summary.bytes_before += bytes.value_or(static_cast<std::int64_t>(tensor.bytes.size()));
  }
  if (summary.num_values > 0) {
    summary.bits_per_weight =
        8.0 * static_cast<double>(summary.bytes_after) / static_cast<double>(summary.num_values);
  }
  return summary;
}

std::string summary_text(const ConversionPlan& plan, bool color) {
  using Align = base::TextTable::Align;
  base::TextTable table({Align::Left, Align::Right, Align::Right, Align::Right});
  table.add_row({"type", "tensors", "weights", "bytes"}, base::Color::Dim);
  for (const auto& [dtype, row] : rows_by_type(plan)) {
    table.add_row({std::string(tensor::name(dtype)), fmt::format("{}", row.tensors),
                   base::human_count(row.values), base::human_bytes(row.bytes)});
  }
  const ConvertSummary summary = summarize(plan);
  table.add_row({"all", fmt::format("{}", summary.num_tensors),
                 base::human_count(summary.num_values), base::human_bytes(summary.bytes_after)},
                base::Color::Bold);
  std::string text = table.render(2, color);
  if (!text.ends_with('\n')) text += '\n';
  text +=
      fmt::format("\n  {} → {}, {:.2f} bits per weight\n", base::human_bytes(summary.bytes_before),
                  base::human_bytes(summary.bytes_after), summary.bits_per_weight);
  return text;
}

json::Object summary_json(const ConversionPlan& plan) {
  const ConvertSummary summary = summarize(plan);
  json::Array types;
  for (const auto& [dtype, row] : rows_by_type(plan)) {
    types.push_back(json::Object{{"type", tensor::name(dtype)},
                                 {"tensors", row.tensors},
                                 {"weights", row.values},
                                 {"bytes", row.bytes}});
  }
  return json::Object{{"tensors", summary.num_tensors},
                      {"weights", summary.num_values},
                      {"bytes_before", summary.bytes_before},
                      {"bytes_after", summary.bytes_after},
                      {"bits_per_weight", summary.bits_per_weight},
                      {"types", std::move(types)},
                      {"notes", json::Array(plan.notes.begin(), plan.notes.end())}};
}

}  // namespace llorch::tools
