#include "formats/pytorch_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "formats/pickle.h"
#include "formats/shards.h"
#include "formats/zip.h"

namespace llorch::formats {
namespace {

using Kind = PickleValue::Kind;
using Bytes = std::span<const std::byte>;

constexpr std::size_t kPickleBytesMax = 64U << 20;
constexpr int kDictDepthMax = 16;
constexpr std::size_t kNameBytesMax = 1024;
constexpr std::int64_t kExpandedBytesMax = std::int64_t{1} << 30;

Error corrupt(std::string message) {
  return {ErrorCode::Corrupt, std::move(message)};
}
Error unsupported(std::string message) {
  return {ErrorCode::Unsupported, std::move(message)};
}

struct NamedDType {
  std::string_view name;
  tensor::DType dtype;
};

constexpr std::array<NamedDType, 10> kStorageTypes = {{
    {"torch.BFloat16Storage", tensor::DType::BF16},
    {"torch.BoolStorage", tensor::DType::Bool},
    {"torch.ByteStorage", tensor::DType::U8},
    {"torch.CharStorage", tensor::DType::I8},
    {"torch.DoubleStorage", tensor::DType::F64},
    {"torch.FloatStorage", tensor::DType::F32},
    {"torch.HalfStorage", tensor::DType::F16},
    {"torch.IntStorage", tensor::DType::I32},
    {"torch.LongStorage", tensor::DType::I64},
    {"torch.ShortStorage", tensor::DType::I16},
}};

constexpr std::array<NamedDType, 15> kDTypes = {{
    {"torch.bfloat16", tensor::DType::BF16},
    {"torch.bool", tensor::DType::Bool},
    {"torch.float16", tensor::DType::F16},
    {"torch.float32", tensor::DType::F32},
    {"torch.float64", tensor::DType::F64},
    {"torch.float8_e4m3fn", tensor::DType::F8E4M3},
    {"torch.float8_e5m2", tensor::DType::F8E5M2},
    {"torch.int16", tensor::DType::I16},
    {"torch.int32", tensor::DType::I32},
    {"torch.int64", tensor::DType::I64},
    {"torch.int8", tensor::DType::I8},
    {"torch.uint16", tensor::DType::U16},
    {"torch.uint32", tensor::DType::U32},
    {"torch.uint64", tensor::DType::U64},
    {"torch.uint8", tensor::DType::U8},
}};

std::optional<tensor::DType> find_dtype(std::span<const NamedDType> table, std::string_view name) {
  for (const NamedDType& row : table) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

bool is_rebuild_tensor(std::string_view function) {
  return function == "torch._utils._rebuild_tensor" ||
         function == "torch._utils._rebuild_tensor_v2" ||
         function == "torch._utils._rebuild_tensor_v3";
}
bool is_rebuild_parameter(std::string_view function) {
  return function == "torch._utils._rebuild_parameter" ||
         function == "torch._utils._rebuild_parameter_with_state";
}

// Elements of a storage that a tensor reaches, checked against what is there.
struct Reach {
  bool contiguous;
  std::int64_t elements;  // from the first to the last, both included
};

// What `strides` over `shape` touch; nothing on overflow.
std::optional<Reach> reach_of(const tensor::Shape& shape, std::span<const std::int64_t> strides) {
  Reach reach{true, 1};
  std::int64_t plain_stride = 1;  // cannot overflow: it divides shape.elements()
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    const std::int64_t stride = strides[static_cast<std::size_t>(axis)];
    std::int64_t extent = 0;
    if (__builtin_mul_overflow(shape[axis] - 1, stride, &extent) ||
        __builtin_add_overflow(reach.elements, extent, &reach.elements)) {
      return std::nullopt;
    }
    if (stride != plain_stride) reach.contiguous = false;
    plain_stride *= shape[axis];
  }
  return reach;
}

// Walks the pickled state dict and adds its tensors to the WeightFile.
class StateDictReader {
 public:
  StateDictReader(const Pickle& pickle, const ZipMembers& members, std::string folder,
                  WeightFile& into)
      : pickle_(pickle), members_(members), folder_(std::move(folder)), into_(into) {}

  Status run() {
    const PickleValue& root = pickle_[pickle_.root];
    if (root.kind != Kind::Dict) {
      return unsupported(fmt::format(
          "the pickle holds a {}, expected a dict of tensors (a state_dict)", name(root.kind)));
    }
    return add_dict(root, "", 0);
  }

 private:
  struct Storage {
    std::optional<tensor::DType> dtype;  // none when untyped: then the tensor says it
    Bytes bytes;
  };

  // Dicts may be shared or cyclic: depth is bounded here, and the visits all together by the count
  // of values, which no honest file comes near.
  Status add_dict(const PickleValue& dict, const std::string& prefix, int depth) {
    if (depth > kDictDepthMax)
      return corrupt(fmt::format("dicts nested deeper than {}", kDictDepthMax));
    for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
      if (++num_visits_ > pickle_.values.size())
        return corrupt("the same dicts are referred to over and over");
      const Result<std::string> full = key_name(pickle_[dict.items[i]], prefix);
      if (!full.ok()) return full.error();
      const PickleValue& value = pickle_[dict.items[i + 1]];
      Status added = value.kind == Kind::Dict ? add_dict(value, *full + ".", depth + 1)
                                              : add_leaf(value, *full);
      if (!added.ok()) return added;
    }
    return ok_status();
  }

  static Result<std::string> key_name(const PickleValue& key, const std::string& prefix) {
    if (key.kind != Kind::String && key.kind != Kind::Int) {
      return unsupported(fmt::format("a dict key is a {}, expected a string", name(key.kind)));
    }
    std::string full =
        prefix + (key.kind == Kind::Int ? fmt::to_string(key.integer) : std::string(key.text));
    if (full.size() > kNameBytesMax) {
      return corrupt(
          fmt::format("a name of {} bytes, more than the {} allowed", full.size(), kNameBytesMax));
    }
    return full;
  }

  Status add_leaf(const PickleValue& value, const std::string& tensor_name) {
    const PickleValue* call = &value;
    // A parameter wraps its tensor: (tensor, requires_grad, hooks[, state]).
    if (call->kind == Kind::Call && is_rebuild_parameter(pickle_[call->items[0]].text)) {
      const PickleValue& arguments = pickle_[call->items[1]];
      if (arguments.items.empty())
        return corrupt(
            fmt::format("tensor {}: a parameter without data", base::quoted(tensor_name)));
      call = &pickle_[arguments.items[0]];
    }
    if (call->kind == Kind::PersistentId) {
      return unsupported(
          fmt::format("{} is a bare storage, expected a tensor", base::quoted(tensor_name)));
    }
    if (call->kind != Kind::Call || !is_rebuild_tensor(pickle_[call->items[0]].text)) {
      if (call == &value) return ok_status();  // a number, a setting: no weight
      return corrupt(fmt::format("tensor {}: a parameter of a {}", base::quoted(tensor_name),
                                 name(call->kind)));
    }
    Result<WeightTensor> tensor = rebuild(pickle_[call->items[0]].text, pickle_[call->items[1]]);
    if (!tensor.ok()) return tensor.error().in(fmt::format("tensor {}", base::quoted(tensor_name)));
    tensor->name = tensor_name;
    return into_.add_tensor(tensor.take());
  }

  // Arguments: (storage, offset, size, stride[, requires_grad, hooks[, dtype when v3][,
  // metadata]]).
  Result<WeightTensor> rebuild(std::string_view function, const PickleValue& arguments) const {
    const bool untyped = function.ends_with("_v3");
    const std::span<const PickleIndex> items = arguments.items;
    if (items.size() < (untyped ? 7U : 4U))
      return corrupt(fmt::format("{} of {} arguments", function, items.size()));
    Result<Storage> storage = find_storage(pickle_[items[0]]);
    if (!storage.ok()) return storage.error();
    if (untyped) storage->dtype = find_dtype(kDTypes, pickle_[items[6]].text);
    if (!storage->dtype) {
      return unsupported(untyped
                             ? fmt::format("unknown dtype {}", base::quoted(pickle_[items[6]].text))
                             : "an untyped storage without a dtype");
    }
    const PickleValue& offset = pickle_[items[1]];
    if (offset.kind != Kind::Int || offset.integer < 0)
      return corrupt("the storage offset is not a count");
    const Result<std::vector<std::int64_t>> size = counts(pickle_[items[2]], "size");
    if (!size.ok()) return size.error();
    Result<std::vector<std::int64_t>> strides = counts(pickle_[items[3]], "stride");
    if (!strides.ok()) return strides.error();
    if (size->size() != strides->size()) {
      return corrupt(fmt::format("{} sizes but {} strides", size->size(), strides->size()));
    }
    Result<tensor::Shape> shape = tensor::Shape::make(*size);
    if (!shape.ok()) return shape.error();
    return view(*storage, offset.integer, *shape, strides.take());
  }

  // A tuple (or torch.Size of one) of numbers, none negative.
  Result<std::vector<std::int64_t>> counts(const PickleValue& value, std::string_view what) const {
    const PickleValue* tuple = &value;
    if (tuple->kind == Kind::Call && pickle_[tuple->items[0]].text == "torch.Size" &&
        pickle_[tuple->items[1]].items.size() == 1) {
      tuple = &pickle_[pickle_[tuple->items[1]].items[0]];
    }
    if (tuple->kind != Kind::Tuple)
      return corrupt(fmt::format("its {} is a {}, expected a tuple", what, name(tuple->kind)));
    if (tuple->items.size() > tensor::Shape::kRankMax) {
      return unsupported(fmt::format("{} dimensions, more than the {} supported",
                                     tuple->items.size(), int{tensor::Shape::kRankMax}));
    }
    std::vector<std::int64_t> numbers;
    for (const PickleIndex index : tuple->items) {
      const PickleValue& number = pickle_[index];
      if (number.kind != Kind::Int || number.integer < 0) {
        return corrupt(fmt::format("its {} holds something that is not a count", what));
      }
      numbers.push_back(number.integer);
    }
    return numbers;
  }

  // The id is ("storage", type, key, device, elements); the bytes are the archive's member
  // FOLDER/data/KEY.
  Result<Storage> find_storage(const PickleValue& value) const {
    if (value.kind != Kind::PersistentId)
      return corrupt(fmt::format("its storage is a {}", name(value.kind)));
    const PickleValue& id = pickle_[value.items[0]];
    if (id.kind != Kind::Tuple || id.items.size() != 5 || pickle_[id.items[0]].text != "storage") {
      return corrupt("its storage id is not (\"storage\", type, key, device, elements)");
    }
    const PickleValue& type = pickle_[id.items[1]];
    const PickleValue& key = pickle_[id.items[2]];
    const PickleValue& elements = pickle_[id.items[4]];
    const bool untyped =
        type.text == "torch.storage.UntypedStorage" || type.text == "torch.UntypedStorage";
    const std::optional<tensor::DType> dtype = find_dtype(kStorageTypes, type.text);
    if (type.kind != Kind::Global || (!dtype && !untyped)) {
      return unsupported(fmt::format("{} is not a known storage type", base::quoted(type.text)));
    }
    if (key.kind != Kind::String || elements.kind != Kind::Int)
      return corrupt("its storage id has wrong types");
    const std::string member = fmt::format("{}data/{}", folder_, key.text);
    const auto found = members_.find(std::string_view(member));
    if (found == members_.end())
      return corrupt(fmt::format("the archive has no member {}", base::quoted(member)));
    const auto bytes = tensor::storage_bytes(dtype.value_or(tensor::DType::U8), elements.integer);
    if (!bytes || std::cmp_not_equal(*bytes, found->second.size())) {
      return corrupt(fmt::format("storage {} says {} elements, its member has {} bytes",
                                 base::quoted(key.text), elements.integer, found->second.size()));
    }
    return Storage{dtype, found->second};
  }

  static Result<WeightTensor> view(const Storage& storage, std::int64_t offset,
                                   const tensor::Shape& shape, std::vector<std::int64_t> strides) {
    const tensor::DType dtype = *storage.dtype;
    if (shape.elements() == 0) return WeightTensor{{}, dtype, shape, {}, {}};
    const std::int64_t element_bytes = tensor::info(dtype).block_bytes;
    const auto stored = static_cast<std::int64_t>(storage.bytes.size()) / element_bytes;
    const std::optional<Reach> reach = reach_of(shape, strides);
    if (!reach || offset > stored || reach->elements > stored - offset) {
      return corrupt(fmt::format(
          "{} with strides [{}] from element {} reaches beyond the {} elements of its storage",
          shape.to_string(), fmt::join(strides, ", "), offset, stored));
    }
    // A stride of 0 repeats elements: a small file could ask for a copy of any size.
    const std::optional<std::int64_t> gathered = tensor::storage_bytes(dtype, shape.elements());
    if (shape.elements() > stored && (!gathered || *gathered > kExpandedBytesMax)) {
      return unsupported(
          fmt::format("{} is an expansion of {} elements beyond the {} bytes allowed",
                      shape.to_string(), stored, kExpandedBytesMax));
    }
    const auto first = static_cast<std::size_t>(offset * element_bytes);
    const auto size = static_cast<std::size_t>(reach->elements * element_bytes);
    if (reach->contiguous) strides.clear();
    for (std::size_t axis = 0; axis < strides.size(); ++axis) {
      if (shape[static_cast<int>(axis)] == 1)
        strides[axis] = 0;  // unused, and of any size in the file
    }
    return WeightTensor{{}, dtype, shape, storage.bytes.subspan(first, size), std::move(strides)};
  }

  const Pickle& pickle_;
  const ZipMembers& members_;
  const std::string folder_;  // "archive/", or nothing
  WeightFile& into_;
  std::size_t num_visits_ = 0;
};

// The archive's one top folder is named after the file it was first saved as; it holds data.pkl.
Result<std::string> find_folder(const ZipMembers& members) {
  constexpr std::string_view kPickleName = "data.pkl";
  std::optional<std::string> folder;
  for (const auto& [member, bytes] : members) {
    const std::size_t slash = member.find('/');
    const std::size_t rest = slash == std::string_view::npos ? 0 : slash + 1;
    if (member.substr(rest) != kPickleName) continue;
    if (folder) return corrupt("two members are data.pkl");
    folder = std::string(member.substr(0, rest));
  }
  if (!folder)
    return corrupt("no member FOLDER/data.pkl: a zip archive, but not one of torch.save");
  return *folder;
}

Status check_byte_order(const ZipMembers& members, const std::string& folder) {
  const std::string member = folder + "byteorder";
  const auto found = members.find(std::string_view(member));
  if (found == members.end()) return ok_status();  // before torch 2.1
  const std::string_view order(reinterpret_cast<const char*>(found->second.data()),
                               found->second.size());
  if (order == "little") return ok_status();
  return unsupported(
      fmt::format("byte order {}, expected \"little\"; save it again on a little-endian machine",
                  base::quoted(order.substr(0, 16))));
}

bool has_magic(Bytes image, std::size_t offset, std::string_view magic) {
  const std::string_view text(reinterpret_cast<const char*>(image.data()), image.size());
  return text.size() >= offset && text.substr(offset).starts_with(magic);
}

Status add_pytorch(Bytes image, WeightFile& into) {
  constexpr std::size_t kTarMagicAt = 257;
  if (!has_magic(image, 0, "PK")) {
    if (has_magic(image, 0, "\x80") || has_magic(image, kTarMagicAt, "ustar")) {
      return unsupported(
          "pytorch: the old format, without a zip archive; load it with a recent torch and save it "
          "again with torch.save");
    }
    return corrupt("pytorch: not a zip archive as torch.save writes it");
  }
  const Result<ZipMembers> members = read_zip(image);
  if (!members.ok()) return members.error().in("pytorch");
  const Result<std::string> folder = find_folder(*members);
  if (!folder.ok()) return folder.error().in("pytorch");
  if (Status order = check_byte_order(*members, *folder); !order.ok())
    return order.error().in("pytorch");
  const std::string pickle_name = *folder + "data.pkl";
  const Bytes pickle_bytes = members->at(pickle_name);
  if (pickle_bytes.size() > kPickleBytesMax) {
    return unsupported(fmt::format("pytorch: data.pkl of {} bytes, more than the {} allowed",
                                   pickle_bytes.size(), kPickleBytesMax));
  }
  const Result<Pickle> pickle = read_pickle(pickle_bytes);
  if (!pickle.ok()) return pickle.error().in("pytorch");
  if (Status read = StateDictReader(*pickle, *members, *folder, into).run(); !read.ok()) {
    return read.error().in("pytorch");
  }
  return ok_status();
}

}  // namespace

Result<WeightFile> read_pytorch(const std::filesystem::path& path) {
  return read_single(FileFormat::PyTorch, path, add_pytorch);
}

Result<WeightFile> read_pytorch_index(const std::filesystem::path& index_path) {
  return read_sharded(FileFormat::PyTorch, index_path, add_pytorch);
}

Result<WeightFile> parse_pytorch(Bytes image) {
  WeightFile weights(FileFormat::PyTorch, {});
  if (Status added = add_pytorch(image, weights); !added.ok()) return added.error();
  return weights;
}

}  // namespace llorch::formats
