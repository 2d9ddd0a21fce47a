#include "tools/export_tokenizer.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "tokenizer/load_parts.h"
#include "tools/tokenizer_check.h"
#include "tools/tokenizer_draft.h"

namespace llorch::tools {
namespace {

using formats::ElementType;
using formats::Metadata;

// Keys as they are added; a key that is there twice is a mistake of this file.
class KeyWriter {
 public:
  explicit KeyWriter(Metadata& metadata) : metadata_(metadata) {}

  void text(std::string_view key, std::string_view value) { put(key, std::string(value), {}); }
  void flag(std::string_view key, bool value) { put(key, value, ElementType::Bool); }
  void id(std::string_view key, std::optional<TokenId> value) {
    if (!value || *value == kNoToken) return;
    put(key, static_cast<std::uint64_t>(*value), ElementType::U32);
  }
  template <class T>
  void numbers(std::string_view key, ElementType type, const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    array(key, type, values.size(), std::move(bytes));
  }
  void texts(std::string_view key, const std::vector<std::string>& values) {
    array(key, ElementType::String, values.size(), formats::pack_texts(values));
  }

 private:
  void array(std::string_view key, ElementType type, std::size_t count,
             std::vector<std::byte> bytes) {
    put(key, formats::ArrayView{type, count, metadata_.adopt(std::move(bytes))},
        ElementType::Array);
  }
  void put(std::string_view key, formats::Value value, std::optional<ElementType> stored) {
    const Status added = metadata_.add(std::string(key), std::move(value), stored);
    CHECK(added.ok(), added.error().message);
  }

  Metadata& metadata_;
};

// The token that is put around texts must be the one GGUF means by its name.
Result<std::optional<TokenId>> around_token(std::span<const TokenId> ids,
                                            std::optional<TokenId> named, std::string_view what) {
  if (ids.empty()) return named;
  if (ids.size() > 1 || (named && *named != ids.front())) {
    return inexpressible(fmt::format("{} around a text other than one {} token", ids.size(), what));
  }
  return std::optional<TokenId>(ids.front());
}

Result<Metadata> make_metadata(const TokenizerDraft& draft, const Tokenizer& source,
                               std::string_view architecture) {
  const auto bos = around_token(source.prefix_ids(), source.bos(), "beginning-of-text");
  if (!bos.ok()) return bos.error();
  const auto eos = around_token(source.suffix_ids(), source.eos(), "end-of-text");
  if (!eos.ok()) return eos.error();
  std::optional<TokenId> end = eos.value();
  if (!end && !source.end_ids().empty()) end = source.end_ids().front();

  Metadata metadata;
  KeyWriter keys(metadata);
  keys.text("general.architecture", architecture);
  keys.text("tokenizer.ggml.model", draft.model);
  if (!draft.pre.empty()) keys.text("tokenizer.ggml.pre", draft.pre);
  if (draft.is_spm) keys.text("tokenizer.ggml.pre", "default");
  keys.texts("tokenizer.ggml.tokens", draft.pieces);
  std::vector<std::int32_t> types;
  for (const tokenizer::PieceType type : draft.types)
    types.push_back(static_cast<std::int32_t>(type));
  keys.numbers("tokenizer.ggml.token_type", ElementType::I32, types);
  if (draft.is_spm) keys.numbers("tokenizer.ggml.scores", ElementType::F32, draft.scores);
  if (!draft.is_spm) keys.texts("tokenizer.ggml.merges", draft.merges);
  keys.id("tokenizer.ggml.bos_token_id", bos.value());
  keys.id("tokenizer.ggml.eos_token_id", end);
  keys.id("tokenizer.ggml.unknown_token_id", source.unknown());
  keys.id("tokenizer.ggml.padding_token_id", source.padding());
  keys.id("tokenizer.ggml.eot_token_id", draft.eot);
  keys.id("tokenizer.ggml.eom_token_id", draft.eom);
  keys.flag("tokenizer.ggml.add_bos_token", !source.prefix_ids().empty());
  keys.flag("tokenizer.ggml.add_eos_token", !source.suffix_ids().empty());
  if (draft.is_spm) {
    keys.flag("tokenizer.ggml.add_space_prefix", draft.adds_space_prefix);
    keys.flag("tokenizer.ggml.remove_extra_whitespaces", draft.collapses_spaces);
  }
  if (!draft.charsmap.empty()) {
    const std::vector<char> bytes(draft.charsmap.begin(), draft.charsmap.end());
    keys.numbers("tokenizer.ggml.precompiled_charsmap", ElementType::U8, bytes);
  }
  for (const auto& [name, text] : source.chat_templates()) {
    const std::string suffix = name == "default" ? "" : "." + name;
    keys.text("tokenizer.chat_template" + suffix, text);
  }
  return metadata;
}

// Ends that are not told by their names go under the two keys there are for more.
Status add_ends(const Tokenizer& source, const Tokenizer& back, TokenizerDraft& draft) {
  std::vector<TokenId> missing;
  for (const TokenId id : source.end_ids()) {
    if (!back.is_end(id)) missing.push_back(id);
  }
  if (missing.size() > 2)
    return inexpressible(fmt::format("it has {} end tokens without a name for it", missing.size()));
  if (!missing.empty()) draft.eot = missing[0];
  if (missing.size() > 1) draft.eom = missing[1];
  return ok_status();
}

Result<GgufExport> finish_export(TokenizerDraft draft, const Tokenizer& source,
                                 const ExportOptions& options) {
  GgufExport result;
  for (int turn = 0; turn < 2; ++turn) {
    Result<Metadata> metadata = make_metadata(draft, source, options.architecture);
    if (!metadata.ok()) return metadata.error();
    result.metadata = metadata.take();
    Result<Tokenizer> back = tokenizer::from_gguf(result.metadata);
    if (!back.ok()) return back.error().in("reading back what was to be written");
    if (turn == 0) {
      if (Status added = add_ends(source, back.value(), draft); !added.ok()) return added.error();
      if (draft.eot != kNoToken) continue;
    }
    if (Status same = check_facts(source, back.value()); !same.ok()) return same.error();
    if (Status same = check_texts(draft, source, back.value(), result.notes); !same.ok())
      return same.error();
    break;
  }
  return result;
}

}  // namespace

Result<GgufExport> export_tokenizer(const tokenizer::HuggingFaceFiles& files,
                                    const ExportOptions& options) {
  Result<Tokenizer> source = tokenizer::from_tokenizer_json(files);
  if (!source.ok()) return source.error();
  Result<TokenizerDraft> draft = draft_json(files.tokenizer_json, source.value(), options);
  if (!draft.ok()) return draft.error();
  return finish_export(draft.take(), source.value(), options);
}

Result<GgufExport> export_tokenizer(const std::filesystem::path& path,
                                    const ExportOptions& options) {
  Result<std::filesystem::path> file = tokenizer::find_tokenizer_file(path);
  if (!file.ok()) return file.error();
  if (file->extension() == ".gguf") {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is a GGUF file already", file->string())};
  }
  Result<tokenizer::FolderFiles> files = tokenizer::read_folder_files(file.value());
  if (!files.ok()) return files.error();
  if (!files->tokenizer_json.empty()) {
    Result<GgufExport> result = export_tokenizer(files->views(), options);
    if (!result.ok()) return result.error().in(file->string());
    return result;
  }
  Result<Tokenizer> source = tokenizer::from_sentencepiece(files->sentencepiece, files->views());
  if (!source.ok()) return source.error().in(file->string());
  Result<TokenizerDraft> draft = draft_sentencepiece(files->sentencepiece, options);
  if (!draft.ok()) return draft.error().in(file->string());
  Result<GgufExport> result = finish_export(draft.take(), source.value(), options);
  if (!result.ok()) return result.error().in(file->string());
  return result;
}

}  // namespace llorch::tools
