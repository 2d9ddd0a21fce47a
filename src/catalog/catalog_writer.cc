// A process that changes a catalog, for the tests of many at once and of one that is killed.
//   llorch-catalog-writer FILE add PREFIX COUNT   adds PREFIX-0, PREFIX-1, … one update each
//   llorch-catalog-writer FILE turn ENTRIES       for ever: every entry gets the same next revision
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "catalog/model_catalog.h"

namespace llorch::catalog {
namespace {

Status add(const ModelCatalog& catalog, const std::string& prefix, int count) {
  for (int i = 0; i < count; ++i) {
    const Status added = catalog.update([&](CatalogContent& content) -> Status {
      contract::ModelEntry entry;
      entry.id = prefix + "-" + std::to_string(i);
      content.put(std::move(entry));
      return ok_status();
    });
    if (!added.ok()) return added;
  }
  return ok_status();
}

Status turn(const ModelCatalog& catalog, int entries) {
  for (;;) {
    const Status turned = catalog.update([entries](CatalogContent& content) -> Status {
      const contract::ModelEntry* first = content.find("entry-0");
      const int revision = first == nullptr ? 0 : std::atoi(first->revision.c_str());
      for (int i = 0; i < entries; ++i) {
        contract::ModelEntry entry;
        entry.id = "entry-" + std::to_string(i);
        entry.revision = std::to_string(revision + 1);
        entry.name = std::string(200, 'n');
        content.put(std::move(entry));
      }
      return ok_status();
    });
    if (!turned.ok()) return turned;
  }
}

}  // namespace
}  // namespace llorch::catalog

int main(int argc, char** argv) {
  using namespace llorch;
  if (argc < 4) return 2;
  const catalog::ModelCatalog catalog(argv[1]);
  const Status done = std::string_view(argv[2]) == "add"
                          ? catalog::add(catalog, argv[3], argc > 4 ? std::atoi(argv[4]) : 1)
                          : catalog::turn(catalog, std::atoi(argv[3]));
  if (!done.ok()) std::fprintf(stderr, "%s\n", done.error().message.c_str());
  return done.ok() ? 0 : 1;
}
