// What hubs and registries answer, read from hostile JSON. Private to fetch/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fetch/choose_files.h"

namespace llorch::fetch {

// GET /api/models/{repo}/revision/{rev}
struct HubInfo {
  std::string commit;   // 40 hex digits
  std::string license;  // may be empty
  bool gated = false;
};
Result<HubInfo> parse_hub_info(std::string_view text);

// One page of GET /api/models/{repo}/tree/{commit}. Folders are left out.
Result<std::vector<ListedFile>> parse_hub_tree(std::string_view text);

// The URL with rel="next" of a Link header; empty: none.
std::string next_link(std::string_view header);

// GET {registry}/{package}, for one version or tag ("" is "latest").
struct NpmVersion {
  std::string version;
  std::string tarball;    // URL
  std::string integrity;  // "sha512-…"
  std::string license;    // may be empty
};
Result<NpmVersion> parse_npm_package(std::string_view text, std::string_view wanted);

}  // namespace llorch::fetch
