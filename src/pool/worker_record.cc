#include "pool/worker_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <random>
#include <system_error>

#include "base/digest.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/timestamp.h"
#include "base/utf8.h"
#include "contract/worker_info.h"

namespace llorch::pool {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kVersion = 1;
constexpr std::size_t kRecordBytesMax = std::size_t{1} << 20;
constexpr std::size_t kListMax = 4096;
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::string_view kRunSuffix = ".run.json";
constexpr std::string_view kExitSuffix = ".exit.json";
constexpr std::string_view kBadSuffix = ".bad";  // a record that could not be read

fs::path beside(const fs::path& record, std::string_view suffix) {
  return record.parent_path() / (record.stem().string() + std::string(suffix));
}

template <class Texts>
json::Array to_array(const Texts& texts) {
  json::Array array;
  for (const auto& text : texts) array.emplace_back(fs::path(text).string());
  return array;
}

json::Object to_json(const base::ProcessIdentity& process) {
  return {{"pid", process.pid}, {"start_ticks", process.start_ticks}, {"boot_id", process.boot_id}};
}

base::ProcessIdentity read_identity(json::FieldReader& reader, std::string_view field) {
  base::ProcessIdentity process;
  const json::Object* object = reader.required_object(field);
  if (object == nullptr) return process;
  json::FieldReader inner(*object, std::string(field) + ".");
  process.pid = static_cast<int>(inner.required_integer("pid", 0, std::numeric_limits<int>::max()));
  process.start_ticks = inner.required_integer("start_ticks", 0, kInt64Max);
  process.boot_id = inner.required_string("boot_id");
  reader.add(inner.finish());
  return process;
}

json::Object to_json(const base::ConfinementRules& rules) {
  json::Object object{{"readable", to_array(rules.readable)},
                      {"executable", to_array(rules.executable)},
                      {"writable", to_array(rules.writable)}};
  if (rules.network) {
    object["network"] = json::Object{
        {"bind", json::Array(rules.network->bind.begin(), rules.network->bind.end())},
        {"connect", json::Array(rules.network->connect.begin(), rules.network->connect.end())},
        {"local_sockets", rules.network->local_sockets}};
  }
  return object;
}

json::Object to_json(const LaunchPlan& plan) {
  json::Object object{{"program", plan.program.string()},
                      {"arguments", to_array(plan.arguments)},
                      {"environment", to_array(plan.environment)},
                      {"log_file", plan.log_file.string()},
                      {"log_bytes_max", plan.log_bytes_max},
                      {"lock_file", plan.lock_file.string()},
                      {"orphan_patience_ms", plan.orphan_patience.count()},
                      {"term_patience_ms", plan.term_patience.count()},
                      {"oom_counter", plan.oom_counter.string()}};
  if (plan.confinement) object["confinement"] = to_json(*plan.confinement);
  return object;
}

std::vector<std::string> read_texts(json::FieldReader& reader, std::string_view field) {
  std::optional<std::vector<std::string>> texts = reader.optional_strings(field, kListMax);
  return texts ? std::move(*texts) : std::vector<std::string>();
}

std::vector<fs::path> read_paths(json::FieldReader& reader, std::string_view field) {
  const std::vector<std::string> texts = read_texts(reader, field);
  return {texts.begin(), texts.end()};
}

std::vector<std::uint16_t> read_ports(json::FieldReader& reader, std::string_view field) {
  std::vector<std::uint16_t> ports;
  const json::Array* array = reader.required_array(field);
  if (array == nullptr) return ports;
  for (const json::Value& value : *array) {
    const std::int64_t* number = value.if_int64();
    if (number == nullptr || *number < 0 || *number > std::numeric_limits<std::uint16_t>::max()) {
      reader.fail(field, "0..65535", "must hold ports");
      return {};
    }
    ports.push_back(static_cast<std::uint16_t>(*number));
  }
  return ports;
}

base::ConfinementRules read_rules(json::FieldReader& reader) {
  base::ConfinementRules rules;
  rules.readable = read_paths(reader, "readable");
  rules.executable = read_paths(reader, "executable");
  rules.writable = read_paths(reader, "writable");
  if (const json::Object* network = reader.optional_object("network")) {
    json::FieldReader inner(*network, "launch.confinement.network.");
    rules.network =
        base::NetworkRules{.bind = read_ports(inner, "bind"),
                           .connect = read_ports(inner, "connect"),
                           .local_sockets = inner.optional_bool("local_sockets").value_or(false)};
    reader.add(inner.finish());
  }
  return rules;
}

LaunchPlan read_launch(json::FieldReader& reader) {
  LaunchPlan plan;
  const json::Object* object = reader.required_object("launch");
  if (object == nullptr) return plan;
  json::FieldReader inner(*object, "launch.");
  plan.program = inner.required_string("program", {1});
  plan.arguments = read_texts(inner, "arguments");
  plan.environment = read_texts(inner, "environment");
  plan.log_file = inner.required_string("log_file", {1});
  plan.log_bytes_max = inner.required_integer("log_bytes_max", 0, kInt64Max);
  plan.lock_file = inner.required_string("lock_file", {1});
  const auto patience = [&inner](std::string_view field) {
    return std::chrono::milliseconds(
        inner.required_integer(field, 0, std::numeric_limits<std::int32_t>::max()));
  };
  plan.orphan_patience = patience("orphan_patience_ms");
  plan.term_patience = patience("term_patience_ms");
  plan.oom_counter = inner.required_string("oom_counter");
  if (const json::Object* rules = inner.optional_object("confinement")) {
    json::FieldReader lists(*rules, "launch.confinement.");
    plan.confinement = read_rules(lists);
    inner.add(lists.finish());
  }
  reader.add(inner.finish());
  return plan;
}

Error corrupt(const fs::path& file, std::string_view what) {
  return Error{ErrorCode::Corrupt, fmt::format("{}: {}", file.string(), what)};
}

Result<json::Object> read_object(const fs::path& file) {
  const Result<std::string> text = base::read_text_file(file, kRecordBytesMax);
  if (!text.ok()) return text.error();
  Result<json::Value> value = json::parse(*text, {.max_bytes = kRecordBytesMax, .max_depth = 16});
  if (!value.ok()) return corrupt(file, value.error().message);
  if (!value->is_object()) return corrupt(file, "expected an object");
  return std::move(value->get_object());
}

Status write_object(const fs::path& file, const json::Object& object) {
  return base::write_file_atomically(file, json::serialize(object) + "\n");
}

// Whole or not at all for every reader, but not synced: a note is about processes, and those do not
// outlive the power either. A sync may take seconds on a busy disk.
Status write_note_object(const fs::path& file, const json::Object& object) {
  const fs::path temporary = file.string() + ".new";
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << json::serialize(object) << '\n';
  out.close();
  base::make_private(temporary);
  std::error_code error;
  if (out) fs::rename(temporary, file, error);
  if (out && !error) return ok_status();
  fs::remove(temporary, error);
  return Error{ErrorCode::Unavailable, fmt::format("{} cannot be written", file.string())};
}

}  // namespace

std::string mark_variable(std::string_view mark) {
  return fmt::format("{}={}", contract::kWorkerMarkVariable, mark);
}

std::string make_mark() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

std::uint32_t start_of(std::string_view mark) {
  constexpr std::size_t kDigits = 8;
  const std::string digits = base::sha256_hex(mark).substr(0, kDigits);
  std::uint32_t start = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), start, 16);
  return std::max<std::uint32_t>(1, start);
}

std::string now_rfc3339() {
  return base::to_rfc3339(std::chrono::system_clock::now());
}

fs::path record_file(const base::Home& home, std::string_view id) {
  return home.workers() / (std::string(id) + ".json");
}

fs::path run_note_file(const fs::path& record) {
  return beside(record, kRunSuffix);
}

fs::path exit_note_file(const fs::path& record) {
  return beside(record, kExitSuffix);
}

Status write_record(const fs::path& file, const WorkerRecord& record) {
  return write_object(file, {{"version", kVersion},
                             {"worker", contract::to_json(record.worker)},
                             {"request", contract::to_json(record.request)},
                             {"mark", record.mark},
                             {"keeper", to_json(record.keeper)},
                             {"port", record.port},
                             {"port_tries", record.port_tries},
                             {"model_bytes", record.model_bytes},
                             {"launch", to_json(record.launch)}});
}

Status write_note(const fs::path& record, const RunNote& note) {
  return write_note_object(
      run_note_file(record),
      {{"mark", note.mark}, {"process", to_json(note.process)}, {"confinement", note.confinement}});
}

Status write_note(const fs::path& record, const ExitNote& note) {
  return write_note_object(exit_note_file(record),
                           {{"mark", note.mark},
                            {"code", note.code},
                            {"signal", note.signal},
                            {"oom_kill", note.oom_kill},
                            {"ordered", note.ordered},
                            {"told", note.told},
                            {"orphaned", note.orphaned},
                            {"start_error", base::to_valid_utf8(note.start_error)},
                            {"ended_at", note.ended_at}});
}

Result<WorkerRecord> read_record(const fs::path& file) {
  const Result<json::Object> object = read_object(file);
  if (!object.ok()) return object.error();
  json::FieldReader reader(*object);
  if (const std::int64_t version = reader.required_integer("version", 0, kInt64Max);
      version != kVersion) {
    return corrupt(file, fmt::format("version {}, expected {}", version, kVersion));
  }
  WorkerRecord record;
  if (const json::Object* worker = reader.required_object("worker")) {
    Result<contract::PoolWorker> parsed = contract::parse_pool_worker(json::Value(*worker));
    if (!parsed.ok()) return corrupt(file, parsed.error().message);
    record.worker = parsed.take();
  }
  if (const json::Object* request = reader.required_object("request")) {
    std::vector<json::FieldError> errors;
    record.request = contract::parse_start_worker_request(*request, errors);
    reader.add(std::move(errors));
  }
  record.mark = reader.required_string("mark", {8, 128});
  record.keeper = read_identity(reader, "keeper");
  record.port = static_cast<std::uint16_t>(reader.required_integer("port", 1, 65535));
  record.port_tries = static_cast<std::int32_t>(reader.required_integer("port_tries", 0, 65535));
  record.model_bytes = reader.required_integer("model_bytes", 0, kInt64Max);
  record.launch = read_launch(reader);
  if (record_file({.state = file.parent_path().parent_path()}, record.worker.id).filename() !=
      file.filename()) {
    reader.fail("worker.id", "name of the file", "is not the name of the file");
  }
  const std::vector<json::FieldError> errors = reader.finish();
  if (!errors.empty()) return corrupt(file, errors[0].field + " " + errors[0].message);
  return record;
}

std::optional<RunNote> read_run_note(const fs::path& record, std::string_view mark) {
  const Result<json::Object> object = read_object(run_note_file(record));
  if (!object.ok()) return std::nullopt;
  json::FieldReader reader(*object);
  RunNote note;
  note.mark = reader.required_string("mark");
  note.process = read_identity(reader, "process");
  note.confinement = reader.required_string("confinement");
  if (!reader.finish().empty() || note.mark != mark) return std::nullopt;
  return note;
}

std::optional<ExitNote> read_exit_note(const fs::path& record, std::string_view mark) {
  const Result<json::Object> object = read_object(exit_note_file(record));
  if (!object.ok()) return std::nullopt;
  json::FieldReader reader(*object);
  ExitNote note;
  note.mark = reader.required_string("mark");
  note.code = static_cast<std::int32_t>(reader.required_integer("code", 0, 255));
  note.signal = static_cast<std::int32_t>(reader.required_integer("signal", 0, 255));
  note.oom_kill = reader.required_bool("oom_kill");
  note.ordered = reader.required_bool("ordered");
  note.told = reader.required_bool("told");
  note.orphaned = reader.required_bool("orphaned");
  note.start_error = reader.required_string("start_error");
  note.ended_at = reader.required_string("ended_at");
  if (!reader.finish().empty() || note.mark != mark) return std::nullopt;
  return note;
}

void remove_notes(const fs::path& record) {
  std::error_code ignored;
  fs::remove(run_note_file(record), ignored);
  fs::remove(exit_note_file(record), ignored);
}

void remove_record(const fs::path& record) {
  std::error_code ignored;
  fs::remove(record, ignored);
  remove_notes(record);
}

void remove_stray_notes(const base::Home& home) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator at(home.workers(), error), none; !error && at != none;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    const std::size_t end = name.find(".json");
    if (end == std::string::npos || name.ends_with(kBadSuffix)) continue;
    std::string id = name.substr(0, end);
    bool is_note = false;
    for (const std::string_view kind : {".run", ".exit"}) {
      if (!id.ends_with(kind)) continue;
      is_note = true;
      id.resize(id.size() - kind.size());
    }
    // A keeper may be writing a note at this moment, but only while there is a record.
    const bool is_temporary = end + std::string_view(".json").size() < name.size();
    std::error_code unknown;
    if (is_note ? !fs::exists(record_file(home, id), unknown) && !unknown : is_temporary)
      leftovers.push_back(at->path());
  }
  for (const fs::path& file : leftovers) fs::remove(file, error);
}

std::vector<fs::path> find_records(const base::Home& home) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(home.workers(), error), none; !error && at != none;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.ends_with(".json") || name.ends_with(kRunSuffix) || name.ends_with(kExitSuffix))
      continue;
    found.push_back(at->path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace llorch::pool
