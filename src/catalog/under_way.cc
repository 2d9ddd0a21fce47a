#include "catalog/under_way.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/json.h"
#include "base/json_fields.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBytesMax = std::size_t{16} << 10;
constexpr std::int64_t kIntMax = std::numeric_limits<std::int64_t>::max();

}  // namespace

Result<UnderWay> parse_under_way(std::string_view text) {
  const Error corrupt{ErrorCode::Corrupt, "the note about a download is damaged"};
  const Result<json::Value> value = json::parse(text, {kBytesMax, 4});
  if (!value.ok() || !value->is_object()) return corrupt;
  json::FieldReader reader(value->get_object());
  UnderWay under_way;
  under_way.ref = reader.required_string("ref");
  under_way.pid = reader.required_integer("pid", 0, kIntMax);
  under_way.files_done = reader.required_integer("files_done", 0, kIntMax);
  under_way.files_total = reader.required_integer("files_total", 0, kIntMax);
  under_way.bytes_done = reader.required_integer("bytes_done", 0, kIntMax);
  under_way.bytes_total = reader.required_integer("bytes_total", 0, kIntMax);
  reader.ignore_others();  // a newer program's
  if (!reader.finish().empty()) return corrupt;
  return under_way;
}

std::optional<UnderWay> load_under_way(const fs::path& model_folder) {
  const Result<std::string> text = base::read_text_file(model_folder / kUnderWayName, kBytesMax);
  if (!text.ok()) return std::nullopt;
  Result<UnderWay> under_way = parse_under_way(*text);
  if (!under_way.ok()) return std::nullopt;
  return under_way.take();
}

// Not synced: it is worth nothing after a crash of the machine but its reference, which was there
// from the beginning.
Status save_under_way(const fs::path& model_folder, const UnderWay& under_way) {
  const json::Object object{{"ref", under_way.ref},
                            {"pid", under_way.pid},
                            {"files_done", under_way.files_done},
                            {"files_total", under_way.files_total},
                            {"bytes_done", under_way.bytes_done},
                            {"bytes_total", under_way.bytes_total}};
  const fs::path file = model_folder / kUnderWayName;
  const fs::path next = file.native() + ".new";
  {
    std::ofstream out(next, std::ios::binary | std::ios::trunc);
    out << json::serialize(object);
    out.flush();
    if (!out) return Error{ErrorCode::Unavailable, fmt::format("cannot write {}", next.string())};
  }
  std::error_code error;
  fs::rename(next, file, error);
  if (!error) return ok_status();
  return Error{ErrorCode::Unavailable,
               fmt::format("cannot rename {}: {}", next.string(), error.message())};
}

std::vector<fs::path> children_of(const fs::path& folder) {
  std::vector<fs::path> children;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    children.push_back(at->path());
  std::sort(children.begin(), children.end());
  return children;
}

std::vector<ModelUnderWay> list_under_way(const fs::path& models) {
  std::vector<ModelUnderWay> all;
  for (const fs::path& folder : children_of(models)) {
    std::optional<UnderWay> now = load_under_way(folder);
    if (!now) continue;
    all.push_back({folder.filename().string(), std::move(*now),
                   base::FileLock::is_held(folder / kDownloadLockName)});
  }
  return all;
}

void remove_under_way(const fs::path& model_folder) {
  std::error_code ignored;
  fs::remove(model_folder / kUnderWayName, ignored);
  fs::remove((model_folder / kUnderWayName).native() + ".new", ignored);
}

}  // namespace llorch::catalog
