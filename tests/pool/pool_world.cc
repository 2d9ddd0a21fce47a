#include "pool/pool_world.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "fetch/chunks.h"

namespace llorch::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint16_t kPortsOfOneWorld = 64;
constexpr const char* kDiskSize = "size=256m";

// Also of a process that ends meanwhile, where reading fails in the middle.
std::string read_all(const fs::path& path) {
  const std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

// Arguments or variables of a process, which /proc separates by zeros.
std::vector<std::string> zero_separated(const fs::path& path) {
  std::vector<std::string> parts;
  std::istringstream in(read_all(path));
  for (std::string part; std::getline(in, part, '\0');) parts.push_back(part);
  return parts;
}

// A zombie has ended; only its parent has not looked yet.
struct StatLine {
  char state = '?';
  pid_t parent = 0;
};
StatLine read_stat(pid_t pid) {
  const std::string text = read_all(fmt::format("/proc/{}/stat", pid));
  StatLine line;
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return line;
  std::istringstream rest(text.substr(name_end + 1));
  rest >> line.state >> line.parent;
  return line;
}

json::Value parse_output(const ProgramOutcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  Result<json::Value> value = json::parse(outcome.out);
  EXPECT_TRUE(value.ok()) << outcome.out << outcome.err;
  return value.ok() ? value.take() : json::Value(json::Object());
}

template <class T, class Parse>
std::vector<T> parse_list(const json::Value& document, std::string_view field, Parse parse) {
  std::vector<T> items;
  const json::Value* list =
      document.is_object() ? document.get_object().if_contains(field) : nullptr;
  EXPECT_TRUE(list != nullptr && list->is_array()) << json::serialize(document);
  if (list == nullptr || !list->is_array()) return items;
  for (const json::Value& element : list->get_array()) {
    Result<T> item = parse(element);
    EXPECT_TRUE(item.ok()) << item.error().message;
    if (item.ok()) items.push_back(item.take());
  }
  return items;
}

}  // namespace

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

PoolWorld::PoolWorld()
    : home_(folder_ / "home"),
      model_file_(source_path("models/builtin/stories.gguf")),
      hub_(std::make_unique<HubSimulator>()) {
  fs::create_directories(home_);
  has_own_disk_ = ::mount("tmpfs", home_.c_str(), "tmpfs", 0, kDiskSize) == 0;
  if (!has_own_disk_)
    fmt::print(
        stderr,
        "no file system may be mounted here: the operations with a full disk are left out\n");
  SimRepo repo{.name = "tales/stories", .commit = std::string(40, 'a'), .license = "apache-2.0"};
  repo.files.push_back({"stories.gguf", read_all(model_file_), true});
  hub_->put_repo(std::move(repo));
  std::random_device random;
  first_port_ = static_cast<std::uint16_t>(20'000 + random() % 400 * kPortsOfOneWorld);
}

PoolWorld::~PoolWorld() {
  for (const Process& process : processes()) ::kill(process.pid, SIGKILL);
  eventually([this] { return processes().empty(); });
  if (has_own_disk_) ::umount2(home_.c_str(), MNT_DETACH);
}

std::vector<std::string> PoolWorld::environment() const {
  return {"LLORCH_HOME=" + home_.string(), "HF_ENDPOINT=" + hub_->url(),
          "HF_TOKEN=", "LLORCH_POOL_PORT=0",
          fmt::format("LLORCH_POOL_WORKERS_FIRST_PORT={}", first_port_)};
}

std::string PoolWorld::remote_ref() const {
  return "hf:tales/stories::file=stories.gguf";
}

ProgramOutcome PoolWorld::cli(const std::vector<std::string>& arguments) const {
  return run_program(LLORCH_POOL_PROGRAM, arguments, environment());
}

std::unique_ptr<ChildProcess> PoolWorld::start(const std::vector<std::string>& arguments) const {
  return std::make_unique<ChildProcess>(LLORCH_POOL_PROGRAM, arguments, environment());
}

std::vector<contract::PoolWorker> PoolWorld::workers() const {
  return parse_list<contract::PoolWorker>(parse_output(cli({"worker", "list", "--json"})),
                                          "workers", contract::parse_pool_worker);
}

std::vector<contract::ModelEntry> PoolWorld::models() const {
  return parse_list<contract::ModelEntry>(
      parse_output(cli({"models", "list", "--json"})), "models",
      [](const json::Value& value) { return contract::parse_model_entry(value, "model"); });
}

bool PoolWorld::runs(const contract::PoolWorker& worker) {
  return worker.state != contract::PoolWorkerState::Stopped &&
         worker.state != contract::PoolWorkerState::Failed;
}

bool PoolWorld::is_intact(const contract::ModelEntry& model) const {
  const fs::path path = model.path;
  const fs::path folder = fs::is_directory(path) ? path : path.parent_path();
  return !model.files.empty() &&
         std::all_of(model.files.begin(), model.files.end(), [&](const contract::ModelFile& file) {
           const Result<fetch::FileChunks> hashed =
               fetch::hash_file(folder / file.path, file.path, [](std::int64_t) { return true; });
           return hashed.ok() && hashed->size == file.size && hashed->sha256 == file.sha256;
         });
}

std::optional<std::int64_t> PoolWorld::flip_a_byte(const std::string& id,
                                                   std::uint32_t where) const {
  for (const contract::ModelEntry& model : models()) {
    if (model.id != id || model.files.empty() || !model.path.starts_with(home_.string())) continue;
    const fs::path folder =
        fs::is_directory(model.path) ? fs::path(model.path) : fs::path(model.path).parent_path();
    const contract::ModelFile& file = model.files.front();
    if (file.size == 0) return std::nullopt;
    std::fstream stream(folder / file.path, std::ios::in | std::ios::out | std::ios::binary);
    const auto at = static_cast<std::streamoff>(where % static_cast<std::uint64_t>(file.size));
    stream.seekg(at);
    const int byte = stream.get();
    stream.seekp(at);
    stream.put(static_cast<char>(byte ^ 0x10));
    if (!stream.good()) return std::nullopt;
    return static_cast<std::int64_t>(at);
  }
  return std::nullopt;
}

std::vector<Process> PoolWorld::processes() const {
  std::vector<Process> found;
  const std::string mark = "LLORCH_HOME=" + home_.string();
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); }))
      continue;
    Process process;
    process.pid = static_cast<pid_t>(std::stol(name));
    const StatLine stat = read_stat(process.pid);
    if (stat.state == 'Z' || stat.state == '?') continue;
    process.parent = stat.parent;
    const std::vector<std::string> arguments = zero_separated(entry.path() / "cmdline");
    if (arguments.empty()) continue;
    for (const std::string& argument : arguments) process.command += argument + " ";
    const std::vector<std::string> variables = zero_separated(entry.path() / "environ");
    const bool is_marked = std::find(variables.begin(), variables.end(), mark) != variables.end();
    const std::string program = fs::path(arguments[0]).filename().string();
    const auto port = std::find(arguments.begin(), arguments.end(), "--port");
    if (program == "llorch-cpud" && port != arguments.end() && std::next(port) != arguments.end()) {
      const long number = std::strtol(std::next(port)->c_str(), nullptr, 10);
      if (number < first_port_ || number >= first_port_ + kPortsOfOneWorld) continue;
      process.role = Role::Worker;
    } else if (arguments.size() > 2 && arguments[1] == "keep" &&
               arguments[2].starts_with(home_.string())) {
      process.role = Role::Keeper;
    } else if (is_marked &&
               (program == "pool-managerd" || (arguments.size() > 1 && arguments[1] == "serve"))) {
      process.role = Role::Manager;
    } else if (!is_marked) {
      continue;
    }
    found.push_back(std::move(process));
  }
  return found;
}

std::vector<Process> PoolWorld::strays() const {
  const std::vector<contract::PoolWorker> known = workers();
  std::set<std::int64_t> pids;
  for (const contract::PoolWorker& worker : known) {
    if (runs(worker)) pids.insert(worker.pid);
  }
  std::vector<Process> all = processes();
  std::set<pid_t> keepers_of_known;
  for (const Process& process : all) {
    if (process.role == Role::Worker && pids.contains(process.pid))
      keepers_of_known.insert(process.parent);
  }
  std::erase_if(all, [&](const Process& process) {
    if (process.role == Role::Worker) return pids.contains(process.pid);
    if (process.role == Role::Keeper) return keepers_of_known.contains(process.pid);
    return true;
  });
  return all;
}

bool PoolWorld::is_alive(std::int64_t pid) {
  const char state = read_stat(static_cast<pid_t>(pid)).state;
  return state != 'Z' && state != '?' && state != 'X';
}

FullDisk::FullDisk(const PoolWorld& world) : file_(world.home() / "filler") {
  if (!world.has_own_disk()) return;
  const int fd = ::open(file_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const std::string block(4096, 'x');
  while (::write(fd, block.data(), block.size()) == static_cast<ssize_t>(block.size())) {
  }
  ::close(fd);
  is_full_ = true;
}

FullDisk::~FullDisk() {
  std::error_code ignored;
  fs::remove(file_, ignored);
}

}  // namespace llorch::test
