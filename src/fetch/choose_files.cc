#include "fetch/choose_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/ascii.h"
#include "base/utf8.h"

namespace llorch::fetch {
namespace {

constexpr std::string_view kUsualQuantisation = "Q4_K_M";
constexpr std::size_t kChoicesShown = 40;
constexpr std::int64_t kSideFileBytesMax = std::int64_t{256} << 20;
constexpr std::array<std::string_view, 8> kTokenizerFiles = {
    "tokenizer.model", "merges.txt",     "vocab.txt",     "chat_template.jinja",
    "spiece.model",    "tiktoken.model", "tokenizer.txt", "sentencepiece.bpe.model"};

std::string_view folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash + 1);
}

std::string_view name_of(std::string_view path) {
  return path.substr(folder_of(path).size());
}

bool is_digits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// "model-00002-of-00005" → "model"; nothing when it is not one of several.
std::optional<std::string_view> split_stem(std::string_view stem) {
  constexpr std::string_view kOf = "-of-";
  const std::size_t of = stem.rfind(kOf);
  if (of == std::string_view::npos || !is_digits(stem.substr(of + kOf.size()))) return std::nullopt;
  const std::size_t dash = stem.substr(0, of).rfind('-');
  if (dash == std::string_view::npos || !is_digits(stem.substr(dash + 1, of - dash - 1)))
    return std::nullopt;
  return stem.substr(0, dash);
}

// The path without its ending and its place among several: what the parts of one model share.
std::string group_of(std::string_view path, std::string_view ending) {
  const std::string_view stem = path.substr(0, path.size() - ending.size());
  return std::string(split_stem(stem).value_or(stem));
}

using Groups = std::map<std::string, std::vector<ListedFile>>;

bool ends_with(std::string_view path, std::string_view ending) {
  return base::ascii_lower(path).ends_with(ending);
}

Groups groups_of(const std::vector<ListedFile>& listing, std::string_view ending) {
  Groups groups;
  for (const ListedFile& file : listing) {
    if (ends_with(file.path, ending)) groups[group_of(file.path, ending)].push_back(file);
  }
  return groups;
}

Groups gguf_groups(const std::vector<ListedFile>& listing) {
  Groups groups = groups_of(listing, ".gguf");
  // Eyes for a model, not a model.
  std::erase_if(groups, [](const auto& group) {
    return base::ascii_lower(name_of(group.first)).find("mmproj") != std::string::npos;
  });
  return groups;
}

// Whether the name is a word of the path: "Q4_K" is none of "x.Q4_K_M.gguf".
bool bears(std::string_view path, std::string_view name) {
  const auto is_part = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  const std::string text = base::ascii_lower(path);
  const std::string word = base::ascii_lower(name);
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_part(text[at - 1])) && (end == text.size() || !is_part(text[end])))
      return true;
  }
  return false;
}

std::string choices(const Groups& groups) {
  std::string text;
  std::size_t shown = 0;
  for (const auto& [name, files] : groups) {
    if (shown++ == kChoicesShown) return text + ", …";
    text += (text.empty() ? "" : ", ") + base::quoted(files.front().path);
  }
  return text;
}

bool is_index_of(std::string_view name, std::string_view ending) {
  return name.ends_with(std::string(ending) + ".index.json");
}

// Configuration and tokenizer beside weights with that ending.
bool is_side_file(const ListedFile& file, std::string_view ending) {
  const std::string_view name = name_of(file.path);
  if (file.size > kSideFileBytesMax || name.starts_with('.')) return false;
  if (name.ends_with(".index.json")) return is_index_of(name, ending);
  return name.ends_with(".json") ||
         std::find(kTokenizerFiles.begin(), kTokenizerFiles.end(), name) != kTokenizerFiles.end();
}

ChosenFiles with_side_files(const std::vector<ListedFile>& listing, std::vector<ListedFile> weights,
                            std::string_view ending) {
  const std::string folder(folder_of(weights.front().path));
  ChosenFiles chosen{folder, std::move(weights)};
  for (const ListedFile& file : listing) {
    if (folder_of(file.path) == folder && is_side_file(file, ending)) chosen.files.push_back(file);
  }
  return chosen;
}

ChosenFiles only(std::vector<ListedFile> files) {
  std::string folder(folder_of(files.front().path));
  return {std::move(folder), std::move(files)};
}

std::size_t depth(std::string_view path) {
  return static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
}

// The weights nearest to the root. The usual names win over others beside them, which repeat them
// in another layout ("consolidated.safetensors") or belong to something else.
Result<std::optional<ChosenFiles>> choose_weights(const std::vector<ListedFile>& listing,
                                                  std::string_view ending,
                                                  std::string_view usual_name,
                                                  std::string_view what) {
  Groups groups = groups_of(listing, ending);
  std::erase_if(groups, [&](const auto& group) {
    const std::string_view name = name_of(group.first);
    return name.starts_with("adapter_") || name.starts_with("optimizer") ||
           name.starts_with("training_args") || (ending == ".bin" && name != usual_name);
  });
  if (groups.empty()) return std::optional<ChosenFiles>();
  std::size_t nearest = depth(groups.begin()->first);
  for (const auto& [name, files] : groups) nearest = std::min(nearest, depth(name));
  std::erase_if(groups, [&](const auto& group) { return depth(group.first) > nearest; });
  Groups usual = groups;
  std::erase_if(usual, [&](const auto& group) { return name_of(group.first) != usual_name; });
  if (usual.size() == 1) groups = std::move(usual);
  if (groups.size() > 1) {
    return Error{ErrorCode::Conflict,
                 fmt::format("{} holds several models: name one with ::file=PATH, of {}", what,
                             choices(groups))};
  }
  return std::optional(with_side_files(listing, groups.begin()->second, ending));
}

bool has_config(const ChosenFiles& chosen) {
  return std::any_of(chosen.files.begin(), chosen.files.end(),
                     [](const ListedFile& file) { return name_of(file.path) == "config.json"; });
}

Result<ChosenFiles> choose_wanted(const std::vector<ListedFile>& listing, std::string_view wanted,
                                  std::string_view what) {
  for (const ListedFile& file : listing) {
    if (file.path != wanted) continue;
    for (const std::string_view ending : {".gguf", ".safetensors", ".bin"}) {
      if (!ends_with(file.path, ending)) continue;
      std::vector<ListedFile> group = groups_of(listing, ending)[group_of(file.path, ending)];
      if (ending == ".gguf") return only(std::move(group));
      return with_side_files(listing, std::move(group), ending);
    }
    return only({file});
  }
  const Groups all = gguf_groups(listing);
  Groups bearing = all;
  std::erase_if(bearing, [&](const auto& group) { return !bears(group.first, wanted); });
  if (bearing.size() == 1) return only(bearing.begin()->second);
  if (bearing.size() > 1) {
    return Error{ErrorCode::Conflict,
                 fmt::format("{} has several files for {}: name one with ::file=PATH, of {}", what,
                             base::quoted(wanted), choices(bearing))};
  }
  return Error{ErrorCode::NotFound,
               fmt::format("{} has no file {} and no GGUF of that name{}{}", what,
                           base::quoted(wanted), all.empty() ? "" : "; there are ", choices(all))};
}

}  // namespace

Result<ChosenFiles> choose_files(const std::vector<ListedFile>& listing, std::string_view wanted,
                                 std::string_view what) {
  if (!wanted.empty()) return choose_wanted(listing, wanted, what);
  Result<std::optional<ChosenFiles>> safetensors =
      choose_weights(listing, ".safetensors", "model", what);
  if (safetensors.ok() && *safetensors && has_config(**safetensors))
    return std::move(**safetensors);
  const Groups ggufs = gguf_groups(listing);
  if (ggufs.size() == 1) return only(ggufs.begin()->second);
  if (ggufs.size() > 1) {
    Groups usual = ggufs;
    std::erase_if(usual, [](const auto& group) { return !bears(group.first, kUsualQuantisation); });
    if (usual.size() == 1) return only(usual.begin()->second);
    return Error{ErrorCode::Conflict,
                 fmt::format("{} has {} GGUF models and not one {}: name one with ::file=, of {}",
                             what, ggufs.size(), kUsualQuantisation, choices(ggufs))};
  }
  if (!safetensors.ok()) return safetensors.error();
  if (*safetensors) return std::move(**safetensors);
  Result<std::optional<ChosenFiles>> pytorch =
      choose_weights(listing, ".bin", "pytorch_model", what);
  if (!pytorch.ok()) return pytorch.error();
  if (*pytorch) return std::move(**pytorch);
  return Error{ErrorCode::NotFound,
               fmt::format("{} holds no GGUF, SafeTensors or PyTorch weights among its {} files",
                           what, listing.size())};
}

}  // namespace llorch::fetch
