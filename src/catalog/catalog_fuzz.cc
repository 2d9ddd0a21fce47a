// Any bytes as a catalog file: never a crash, and what is accepted reads back the same once it is
// written.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "catalog/model_catalog.h"

namespace llorch::catalog {
namespace {

void check(std::string_view text) {
  const Result<CatalogContent> first = parse_catalog(text);
  if (!first.ok()) {
    CHECK(base::is_valid_utf8(first.error().message));
    return;
  }
  const std::string written = write_catalog(*first);
  const Result<CatalogContent> second = parse_catalog(written);
  CHECK(second.ok(), written);
  CHECK(*second == *first);
  CHECK(write_catalog(*second) == written);
  for (const contract::ModelEntry& entry : first->models) CHECK(first->find(entry.id) == &entry);
}

}  // namespace
}  // namespace llorch::catalog

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  llorch::catalog::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
