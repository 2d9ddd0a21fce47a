// Taking a model's files from another host's pool, which has verified them.
#pragma once

#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "fetch/source.h"

namespace llorch::fetch {

// Another host's pool.
struct Neighbour {
  std::string url;    // "http://10.0.0.2:9200", without a path
  std::string token;  // may be empty
};

// "attic", "10.0.0.2:9300", "[::1]:9200", "https://attic": http and the pool's own port where it
// does not say. InvalidArgument with what was expected.
Result<Neighbour> parse_neighbour(std::string_view text, std::string token);

// Asks for the manifest (see pool/model_files.h). Every file has its size, its hash, the hashes of
// its chunks and the token in its headers; the files themselves are asked for by number, so nothing
// the neighbour says becomes part of a URL. NotFound when it does not have the model or never
// verified it, Unauthorized when it wants another token, Corrupt when what it says makes no sense.
Result<ModelSource> resolve_neighbour(const Neighbour& neighbour, std::string_view model_id,
                                      const SourceOptions& options, std::stop_token stop);

}  // namespace llorch::fetch
